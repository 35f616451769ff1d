# SPDX-License-Identifier: BSD-3-Clause
# inlay is headers: what is built here are its tests, examples and measurements. `make help` lists the targets.

B = build
T = $(B)/tap
PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
STD = gnu11
CFLAGS = -O2 -g1
SANITIZE =
SCRIPTS = $(filter-out $(foreign) $(packaging),$(scripts))
DEVICE =
FUZZ = 60
ifeq ($(origin CC),default)
CC = gcc
endif
ifndef V
Q = @
endif

# All paths are relative to this file's folder
ifneq ($(realpath $(dir $(lastword $(MAKEFILE_LIST)))),$(CURDIR))
$(error inlay is built and installed from its own folder: make -C $(dir $(lastword $(MAKEFILE_LIST))) $(MAKECMDGOALS))
endif

FLAGS = -std=$(STD) -Wall -Wextra $(WERROR) -pthread -MMD -MP $(SANITIZE:%=-fsanitize=%) $(CPPFLAGS) $(CFLAGS)
INCLUDES = -Iinclude -Itests -Itests/softdev
VERBS = -libverbs -lmlx5
VERSION = $(shell sed -n 's/^.define INLAY_VERSION_[MP][A-Z]* //p' include/inlay/base.h | paste -sd.)

# Each tests/ROOM/NAME.c is a program, built unchecked (NAME-0) or checked (NAME-1, with -O1 instead of -O2, which
# compiles faster). If there is a NAME.t beside it, that script builds it.
rooms = queue connect mmap buf match tag memdomain devx task gpu fabric golden programs house
scripts = $(wildcard $(rooms:%=tests/%/*.t) tests/softdev/tests/*.t)
programs = $(patsubst tests/%.c,%,$(filter-out $(scripts:.t=.c) tests/house/aarch64.c,$(wildcard $(rooms:%=tests/%/*.c))))
# As C++ too, but for C only: the provider that fabric/ tests, and the rig that tag/oracle shares with the device's tests
cplusplus = $(filter-out fabric/% tag/oracle,$(programs))
both = $(foreach p,$(programs),$(B)/tests/$(p)-0 $(B)/tests/$(p)-1)
# check has each program once: checked, which also tries the preconditions, but for those that compare bytes, as callers build them.
# check-all has both.
bytes = queue/oracle% tag/oracle devx/builders devx/fields
once = $(foreach p,$(programs),$(B)/tests/$(p)-$(if $(filter $(bytes),$(p)),0,1))
# Without a device, for aarch64 too, by qemu
emulated = devx/fields match/match memdomain/domain mmap/lookup queue/compressed queue/cqe queue/striding queue/wqe task/fuzz
tests = $(devicetests) $(once) $(emulated:%=$(B)/aarch64/%)
# Scripts that run programs of others, which race with themselves or hang: make check-programs, which tries each three times
foreign = tests/programs/racing.t
# Scripts of a row of check-all: they take minutes or need Debian's mirror
packaging = tests/house/deb.t tests/house/site.t
examples = $(patsubst %.c,$(B)/%,$(wildcard examples/*.c))
library = $(B)/libsoftdev.so $(B)/libinlay-shim.so
shim = $(patsubst examples/%.c,$(B)/examples/%.o,$(wildcard examples/shim/*.c))
fabric = $(patsubst examples/%.c,$(B)/examples/%.o,$(wildcard examples/fabric/*.c))

# `make deps check`: nothing is compiled before deps is done.
first = $(filter deps deps-all,$(MAKECMDGOALS))

.DEFAULT_GOAL = all
include tests/softdev/softmlx5.mk

linked = $(B)/only.o
$(devicetests) $(both): $(B)/only.o

# A sanitizer wants to be loaded before all else, so that the device cannot be preloaded: it is linked into each test program instead.
ifneq ($(SANITIZE),)
linked += $(softdev) -rdynamic -ldl
$(devicetests) $(both): $(softdev)
endif

.DELETE_ON_ERROR:
.PHONY: all help deps deps-all run check test taps check-all check-programs fuzz soak lint memcheck proof bench bench-all bench-check include-cost single manual docs dist deb ffi coverage mutants certify list FORCE install uninstall install-softmlx5 uninstall-softmlx5 install-fabric uninstall-fabric clean

all: $(library) $(B)/libinlay-fi.so $(tests) $(examples) ## builds the software device, tests and examples

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo "Settings: CC, STD ($(STD)), CFLAGS ($(CFLAGS)), CPPFLAGS, LDFLAGS, PREFIX ($(PREFIX)), LIBDIR (PREFIX/lib), DESTDIR,"
	@echo "V=1 shows the commands, WERROR=-Werror makes warnings errors, as in .ci/run,"
	@echo "DEVICE=mlx5_0 runs the tests on that device instead of the software one,"
	@echo "RDMA_CORE=DIR tests on another rdma-core: its libraries, and the headers beside its own."

# ---- Debian packages ----

# libsoftdev.so reads a header of librdmacm-dev
needs_run = gcc libc6-dev make pkg-config libibverbs-dev librdmacm-dev
needs_check = g++ clang binutils perl gdb valgrind libcmocka-dev systemtap-sdt-dev libssl-dev \
	libfabric-dev libucx-dev libdpdk-dev linux-headers-amd64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user \
	cmake doxygen groff-base jq python3 \
	ibverbs-utils rdmacm-utils perftest ucx-utils libfabric-bin openmpi-bin libopenmpi-dev mpich libmpich-dev
needs_certify = perl libcmocka-dev ibverbs-utils perftest
needs_bench = $(needs_check) hyperfine gnuplot-nox
needs_deb = debhelper libfabric-dev lintian mmdebstrap
needs_all = $(needs_bench) $(needs_deb) chromium llvm libclang-rt-14-dev g++-aarch64-linux-gnu llvm-22 clang-22 clang-tidy cppcheck frama-c-base lammps

# What the goals beside it need: `make deps run` installs a compiler and libibverbs, and no more
beside = $(or $(filter-out deps deps-all,$(MAKECMDGOALS)),check)
needs = $(if $(filter deps-all,$(MAKECMDGOALS))$(filter check-all lint proof fuzz coverage mutants,$(beside)),all,$(if \
	$(filter bench%,$(beside)),bench,$(if $(filter-out run dist deb install install-softmlx5 certify,$(beside)),check,$(or $(filter deb certify,$(beside)),run))))
packages = $(sort $(needs_run) $(if $(filter-out run,$(needs)),$(needs_$(firstword $(needs)))))

deps: ## installs the Debian packages that the goals beside it need (make deps run); alone, those of check
deps-all: ## installs the packages of all targets
deps deps-all:
	@{ command -v dpkg-query && command -v apt-get; } >/dev/null || { echo "make $@ knows Debian only. Needed here: $(packages)" >&2; exit 1; }; \
	missing=; for p in $(packages); do \
		dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null | grep -qx installed || missing="$$missing $$p"; done; \
	[ -n "$$missing" ] || exit 0; \
	echo "installing:$$missing"; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	$$sudo apt-get update -qq && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# ---- Building ----

# What is built depends on this file, which changes when a setting does
settings = $(CC) $(FLAGS) $(LDFLAGS)
$(B)/settings: FORCE
	@mkdir -p $(@D); echo '$(subst ','\'',$(settings))' | cmp -s - $@ || echo '$(subst ','\'',$(settings))' >$@

say = @mkdir -p $(@D); echo "  CC    $@"
compile = $(Q)$(CC) $(FLAGS) -MT $@ -MF $@.d -o $@ $<

$(shim) $(fabric): $(B)/examples/%.o: examples/%.c $(B)/settings | $(first)
	$(say)
	$(compile) -c -fPIC -fvisibility=hidden -Iinclude

$(B)/libinlay-shim.so: $(shim)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -pthread -o $@ $^ $(SANITIZE:%=-fsanitize=%) $(VERBS) -ldl

# The libfabric provider; checked/ has it with INLAY_CHECKED=1, for the tests
$(fabric:$(B)/%=$(B)/checked/%): $(B)/checked/examples/%.o: examples/%.c $(B)/settings | $(first)
	$(say)
	$(compile) -c -fPIC -fvisibility=hidden -DINLAY_CHECKED=1 -Iinclude

$(B)/libinlay-fi.so: $(fabric)
$(B)/checked/libinlay-fi.so: $(fabric:$(B)/%=$(B)/checked/%)
$(B)/libinlay-fi.so $(B)/checked/libinlay-fi.so:
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -pthread -o $@ $^ $(SANITIZE:%=-fsanitize=%) $(VERBS) -lfabric

$(B)/tests/fabric/%: VERBS += -lfabric
# What the provider calls is found in the program before the libraries
$(B)/tests/fabric/sim-0 $(B)/tests/fabric/sim-1: VERBS += -rdynamic -ldl
$(filter $(B)/tests/fabric/%-0,$(both)): | $(B)/libinlay-fi.so
$(filter $(B)/tests/fabric/%-1,$(both)): | $(B)/checked/libinlay-fi.so

$(B)/only.o: tests/only.c $(B)/settings | $(first)
	$(say)
	$(compile) -c

$(B)/tests/%-0: tests/%.c $(B)/settings | $(first)
	$(say)
	$(compile) -DINLAY_CHECKED=0 $(INCLUDES) $(linked) $(LDFLAGS) $(VERBS) -lcmocka

$(B)/tests/%-1: tests/%.c $(B)/settings | $(first)
	$(say)
	$(compile:-O2=-O1) -DINLAY_CHECKED=1 $(INCLUDES) $(linked) $(LDFLAGS) $(VERBS) -lcmocka

$(B)/examples/%: examples/%.c $(B)/settings | $(first)
	$(say)
	$(compile) -Iinclude $(LDFLAGS) $(VERBS)

# They authenticate blobs with a library's code
$(foreach p,mmap/blob mmap/map mmap/pci,$(B)/tests/$(p)-0 $(B)/tests/$(p)-1) $(B)/examples/shared_memory: VERBS += -lcrypto

# Kernels, which tests/gpu interprets; by nvcc too, where it is
NVCC = $(firstword $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH)) /usr/local/cuda/bin)))
kernels = $(B)/gpu/clang.ptx $(if $(NVCC),$(B)/gpu/nvcc.ptx)
$(B)/gpu/clang.ptx: tests/gpu/kernels.cu $(B)/settings | $(first)
	$(say)
	$(Q)clang++ -x cuda --cuda-device-only -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-gpu-arch=sm_80 -std=c++17 -O2 -Iinclude \
		-MMD -MT $@ -MF $@.d -S -o $@ $<
$(B)/gpu/nvcc.ptx: tests/gpu/kernels.cu $(B)/settings | $(first)
	$(say)
	$(Q)$(NVCC) -std=c++17 -arch=sm_90 -Iinclude -MMD -MT $@ -MF $@.d -ptx -o $@ $<

# Statically, and tests/house/aarch64.c stands for cmocka. libibverbs' headers are the same for every instruction set.
CROSS = aarch64-linux-gnu-gcc
crossflags = -std=$(STD) -O1 -Wall -Wextra $(WERROR) -pthread -MMD -MP -MT $@ -MF $@.d -isystem $(B)/aarch64/include
$(B)/aarch64/cmocka.o: tests/house/aarch64.c $(B)/settings | $(first)
	$(say)
	$(Q)mkdir -p $(@D)/include && ln -sf /usr/include/infiniband /usr/include/cmocka*.h $(@D)/include
	$(Q)$(CROSS) $(crossflags) -c -o $@ $<

$(B)/aarch64/%: tests/%.c $(B)/aarch64/cmocka.o
	$(say)
	$(Q)$(CROSS) $(crossflags) -DINLAY_CHECKED=$(if $(findstring clang,$(CROSS)),1,0) $(INCLUDES) -static -o $@ $< $(B)/aarch64/cmocka.o

-include $(sort $(wildcard $(B)/*/*.d $(B)/*/*/*.d $(B)/*/*/*/*.d $(B)/fuzz/tests/softdev/*/*.d $(T)/*/*.d $(T)/*/*/*.d))

# ---- Running ----

run: $(B)/examples/pingpong $(B)/libsoftdev.so ## the example on an mlx5 device, the software one when there is no other
	@if readlink -f /sys/class/infiniband/*/device/driver | grep -q /mlx5_core$$; then $<; else tests/softdev/run $<; fi

# A test runs when it, or what it reads, is newer than its result, $(T)/NAME.tap, which is there only if it passed (tests/keep).
# What a script's gcc reads is recorded; what else it reads is said here, or else is of its folder.
tap = $(SCRIPTS:tests/%=$(T)/%.tap) $(patsubst $(B)/tests/%,$(T)/%.tap,$(patsubst $(B)/aarch64/%,$(T)/aarch64/%.tap,$(tests)))
script = $(filter $(1:%=$(T)/%.t.tap),$(tap))
headers = $(shell find include -name '*.h')

# A result is of these settings too: lengths of random runs, the device
knobs = $(foreach v,$(sort $(filter %_OPS %_ENDS %_CASES %_STREAMS %_ROUNDS %_STEPS %_WALKS %_SCHEDULES %_SECONDS %_ALL %_MATRIX INLAY_% SOFTDEV_% \
	SIM_% FI_% FLOOD TURNS TEST_UNDER TEST_ONLY LEVELS RDMA_CORE DEVICE,$(.VARIABLES))),$(if $(filter environment command,$(firstword $(origin $(v)))),$(v)=$($(v))))
$(T)/settings: FORCE
	@mkdir -p $(@D); echo '$(subst ','\'',$(knobs))' | cmp -s - $@ || echo '$(subst ','\'',$(knobs))' >$@

runner = tests/keep tests/exec tests/devices tests/softdev/run $(or $(wildcard $(SOFTDEV_SO)),$(B)/libsoftdev.so) $(T)/settings
keep = $(Q)B=$(B) CC="$(CC)" DEVICE=$(DEVICE) SOFTDEV_LINKED=$(SANITIZE) tests/keep $@ $<
$(T)/%.t.tap: tests/%.t tests/tap.sh $(runner)
	$(keep)
$(T)/aarch64/%.tap: $(B)/aarch64/% tests/keep tests/exec $(T)/settings
	$(keep)
$(T)/%.tap: $(B)/tests/% $(runner)
	$(keep)

$(foreach r,$(rooms) softdev/tests,$(eval $(filter $(T)/$(r)/%.t.tap,$(tap)): $(wildcard $(r:%=tests/%/*.sh) $(r:%=tests/%/*.pl))))
$(foreach s,$(SCRIPTS),$(eval $(s:tests/%=$(T)/%.tap): $(wildcard $(s:.t=.c))))
$(filter $(T)/gpu/posts-% $(T)/gpu/schedules-%,$(tap)): $(kernels)
$(filter $(T)/fabric/%-0.tap,$(tap)): $(B)/libinlay-fi.so
$(filter $(T)/fabric/%-1.tap $(T)/fabric/%.t.tap,$(tap)): $(B)/checked/libinlay-fi.so
$(call script,fabric/%): $(filter $(B)/tests/fabric/%,$(if $(PROGRAMS_ALL),$(both),$(once))) $(wildcard tests/programs/mpi/* tests/programs/mpi.sh)
$(call script,programs/% softdev/tests/% task/offload devx/info house/readme house/ffi): $(examples) $(library)
$(call script,programs/%): $(wildcard tests/programs/*/* examples/shim/run)
$(call script,programs/shim): $(devicetests) $(B)/tests/queue/oracle-0
$(call script,programs/certify): tests/certify $(filter $(B)/tests/%,$(once))
$(call script,house/api house/docs house/ffi house/install house/names house/single house/versions): $(headers) Makefile
$(call script,house/api house/cplusplus): README.md $(wildcard $(rooms:%=tests/%/*.[ch]) tests/*.h)
$(call script,house/docs house/ffi house/install house/single): $(wildcard pkgconfig/*)
$(call script,house/names house/readme house/docs): $(shell find . -name '*.md' ! -path './build/*')
$(call script,house/counts): $(wildcard bench/*) $(wildcard bench/peers/*)
$(call script,house/versions): $(wildcard tests/house/versions/*)
$(call script,golden/golden) $(filter $(T)/queue/decode-%,$(tap)): $(wildcard tests/golden/*)
$(call script,softdev/tests/install): $(wildcard tests/softdev/*.h tests/softdev/*/*.h tests/softdev/*.m[dk]) pkgconfig/docs.pl

taps: $(library) $(tests) $(examples) $(tap)

# As many at a time as make's -j says; without it, as there are processors
check: | $(first) ## all tests whose result a change may have touched; from a clean tree within 5 minutes
	@[ -z "$(DEVICE)" ] || [ -e /sys/class/infiniband/$(DEVICE) ] || { echo "no device $(DEVICE) in /sys/class/infiniband" >&2; exit 2; }
	+$(Q)$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) taps
	$(Q)grep -hs '^# seconds' $(tap) | sort -k3,3nr >$(T)/times || :
	$(Q)prove -Q --exec 'tests/keep --show' $(tap)

test: check ## the same as check

check-all: ## tests with every compiler, standard, optimisation and sanitizer, and the long random ones: rows of ten minutes, ROWS=REGEX
	+$(Q)tests/matrix

check-programs: $(library) $(examples) ## programs of others that race with themselves, on the device: each script may try three times, and says so
	$(Q)for t in $(foreign); do for try in 1 2 3; do \
		B=$(B) CC="$(CC)" prove --exec tests/exec $$t && continue 2; echo "$$t: try $$try of 3 failed" >&2; done; exit 1; done

coverage: ## which lines and branches of the headers the test programs run, in build/coverage
	+$(Q)B=$(B) tests/coverage

mutants: ## small changes, those of tests/mutants.list and of headers drawn by SEED: does a test fail? MUTANTS (100), SECONDS (1800); after coverage
	$(Q)B=$(B) tests/mutants

certify: ## tests a real NIC, DEVICE=mlx5_0, with traffic from its port to itself, and writes a report to send in
	@[ -n "$(DEVICE)" ] || { echo "make certify DEVICE=mlx5_0: which device?" >&2; exit 2; }
	$(Q)$(MAKE) --no-print-directory $(B)/examples/pingpong $$(tests/certify --programs | sed 's,[^ ]*,$(B)/tests/&-1,g') >&2
	$(Q)B=$(B) CC="$(CC)" tests/certify $(DEVICE) >$(B)/certify.md; status=$$?; cat $(B)/certify.md; exit $$status

list: # the test programs, for scripts
	@echo $(tests)

fuzzers = host worker plugin parse cqe fabric device
fuzzed = clang -std=$(STD) -O1 -g -Wall -Wextra -MMD -MP -MF $@.d -MT $@ -DINLAY_CHECKED=1 -Iinclude \
	-fsanitize=$(1),address,undefined -fno-sanitize-recover=all
fuzz: $(fuzzers:%=$(B)/fuzz/%) ## random bytes into every parser, FUZZ seconds (60) in all, with clang
	$(Q)for f in $(fuzzers); do \
		mkdir -p $(B)/fuzz/corpus/$$f && $(B)/fuzz/$$f -max_len=1536 -print_final_stats=1 \
			-max_total_time=$$((($(FUZZ) + $(words $(fuzzers)) - 1) / $(words $(fuzzers)))) \
			-artifact_prefix=$(B)/fuzz/$$f- $(B)/fuzz/corpus/$$f tests/fuzz/seeds/$$f tests/fuzz/corpus/$$f || exit 1; \
	done

$(B)/fuzz/%: tests/fuzz/%.c $(B)/settings | $(first)
	$(say)
	$(Q)$(call fuzzed,fuzzer) -o $@ $(filter %.c %.o,$^) $(VERBS)

# The provider's clock is the input's. Its pools and its table are small at first, so they are made fast and grow.
$(B)/fuzz/examples/%.o: examples/%.c $(B)/settings | $(first)
	$(say)
	$(Q)$(call fuzzed,fuzzer-no-link) -Dclock_gettime=fabric_clock_gettime -Dgetrandom=fabric_getrandom -DCHUNK_BYTES=65536u -DMATCH_ENTRIES=64u \
		-c -o $@ $<

$(B)/fuzz/fabric: $(patsubst %.c,$(B)/fuzz/%.o,$(wildcard examples/fabric/*.c))

# The device, with the libc calls it uses replaced by the fuzzer's, which also owns the program's memory
$(B)/fuzz/tests/softdev/%.o: tests/softdev/%.c $(B)/settings | $(first)
	$(say)
	$(Q)$(call fuzzed,fuzzer-no-link) -Dprocess_vm_readv=device_vm_readv -Dprocess_vm_writev=device_vm_writev \
		-Dsyscall=device_syscall -Dfopen=device_fopen -c -o $@ $<

$(B)/fuzz/device: $(patsubst %.c,$(B)/fuzz/%.o,$(filter-out %/preload.c,$(wildcard $(softdevrooms:%=tests/softdev/%/*.c))))

lint: ## clang-tidy and cppcheck find nothing in the headers
	$(Q)prove --exec bash tests/lint

# Programs that valgrind gets through in minutes. It does not see what the device writes through the kernel, nor a
# program that starts itself again.
memcheck = queue/rings queue/compressed queue/striding queue/srq_ring buf/buf buf/model mmap/blob mmap/map mmap/lookup match/match
memcheck: $(memcheck:%=$(B)/tests/%-1) $(B)/libsoftdev.so ## some of the test programs under valgrind
	$(Q)B=$(B) TEST_UNDER="valgrind -q --error-exitcode=9" prove -j$(shell nproc) --exec tests/exec $(filter $(B)/tests/%,$^)

proof: ## no access outside of rings, registers and blobs, for any content, with Frama-C
	$(Q)tests/proof/run

soaks = queue/storm fabric/soak
# Ten runs: the queues, and the provider, which has threads too; on RoCE and on InfiniBand; unchecked and checked
soak: $(soaks:%=$(B)/tests/%-0) $(soaks:%=$(B)/tests/%-1) $(library) ## four processes, random operations and faults, every byte checked, for SECONDS (120)
	$(Q)B=$(B) SOAK_SECONDS=$$(($(or $(SECONDS),120) / 10)) TEST_TIMEOUT=$$(($(or $(SECONDS),120) + 600)) \
		prove --exec tests/exec $(filter $(B)/tests/%,$^)

bench: $(library) $(B)/libinlay-fi.so ## measurements beside what else a user would pick, within 10 minutes; PAGE=1 renews bench/results.md
	$(Q)CC="$(CC)" bench/run
	$(Q)mkdir -p $(B)/bench/page && CC="$(CC)" bench/page $(B)/bench $(if $(PAGE),bench,$(B)/bench/page)
	@cat $(if $(PAGE),bench,$(B)/bench/page)/results.md

bench-all: $(library) $(B)/libinlay-fi.so ## all measurements: long tables in build/bench/all.tsv
	$(Q)CC="$(CC)" bench/run --all
	$(Q)bench/page --all $(B)/bench | tee $(B)/bench/all.tsv

bench-check: $(B)/libsoftdev.so ## no operation takes more instructions than bench/counts.tsv says: a part of check
	$(Q)B=$(B) prove --exec tests/exec tests/house/counts.t tests/queue/ceilings.t

include-cost: ## what one include of each public header costs a compiler, and each call a program
	$(Q)bench/include

# ---- Installing ----

single: $(B)/single/inlay.h ## inlay.h and all that it includes as one file, build/single/inlay.h, to drop into another tree

$(B)/single/%.h: include/inlay/%.h pkgconfig/single.awk LICENSE $(headers)
	@mkdir -p $(@D)
	$(Q)awk -f pkgconfig/single.awk -v version=$(VERSION) LICENSE $< >$@

pages = $(filter-out %/README.md,$(wildcard include/inlay/*.md))

manual: ## manual pages of all functions, headers and pages, in build/docs/man; make install takes them
	@rm -rf $(B)/docs/man; mkdir -p $(B)/docs/man/man3 $(B)/docs/man/man7
	$(Q)perl pkgconfig/docs.pl --man $(B)/docs/man $(VERSION) $(headers) $(pages)

docs: manual ## HTML pages of all headers, in build/docs/html (doxygen)
	@rm -rf $(B)/docs/html
	$(Q){ cat pkgconfig/Doxyfile; echo 'INPUT = README.md include/inlay'; echo 'OUTPUT_DIRECTORY = $(B)/docs'; echo 'PROJECT_NUMBER = $(VERSION)'; } | doxygen -

ffi: $(B)/ffi/libinlay-ffi.so ## build/ffi/libinlay-ffi.so: inlay.h for other languages (examples/ffi.py); it is not installed

$(B)/ffi/libinlay-ffi.so: pkgconfig/ffi.c $(B)/settings | $(first)
	$(say)
	$(Q)echo 'INLAY_$(basename $(VERSION)) { global: inlay_*[!_]; local: *; };' >$(B)/ffi/map
	$(compile) -shared -fPIC -Iinclude -Wl,--version-script=$(B)/ffi/map $(LDFLAGS) $(VERBS)

# The same bytes from the same commit, also from an unpacked tarball: the commit's time, which is the Makefile's there
release = inlay-$(VERSION)
epoch = $(or $(SOURCE_DATE_EPOCH),$(shell if [ -e .git ]; then git log -1 --format=%ct; else stat -c %Y Makefile; fi))
dist: $(B)/single/inlay.h ## build/inlay-VERSION.tar.gz: this tree, and inlay.h with all that it includes as one file
	$(Q){ if [ -e .git ]; then git ls-files; else find . -type f ! -path './build/*' ! -path './debian/*' ! -path ./inlay.h -printf '%P\n'; fi; } | \
		LC_ALL=C sort | tar -c --format=ustar --mtime=@$(epoch) --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --transform 's,^,$(release)/,' \
		-T - -C $(B)/single inlay.h | gzip -9n >$(B)/$(release).tar.gz

deb: dist ## Debian packages libinlay-dev, softmlx5 and inlay-fabric, in build/deb
	$(Q)rm -rf $(B)/deb; mkdir $(B)/deb; tar -xzf $(B)/$(release).tar.gz -C $(B)/deb
	$(Q)cd $(B)/deb/$(release) && cp -r pkgconfig/debian . && sed '1,4d; s/^$$/./; s/^/ /' LICENSE >>debian/copyright && \
		printf 'inlay ($(VERSION)) unstable; urgency=low\n\n  * .github/CHANGES.md says what is new.\n\n -- %s  %s\n' \
		"$$(sed -n 's/^Maintainer: //p' debian/control)" "$$(LC_ALL=C date -u -R -d @$(epoch))" >debian/changelog && \
		env -u MAKEFLAGS -u MFLAGS DEB_BUILD_OPTIONS="noautodbgsym parallel=$$(nproc)" dpkg-buildpackage -b -us -uc >../log 2>&1 || \
		{ cat ../log; exit 1; }
	@ls $(B)/deb/*.deb

to = $(DESTDIR)$(PREFIX)
lib = $(DESTDIR)$(LIBDIR)
absolute = case '$(PREFIX)' in /*) ;; *) echo "PREFIX=$(PREFIX) is not an absolute path" >&2; exit 2 ;; esac

install: ## headers, inlay.pc, a CMake package, gdb's printers, manual pages if they are made, below DESTDIR and PREFIX
	$(Q)$(absolute)
	$(Q)for d in $(sort $(dir $(headers:include/%=%))); do install -D -m 644 -t '$(to)'/include/$$d include/$$d*.h || exit 1; done
	$(Q)install -d '$(to)/share/pkgconfig'
	$(Q){ echo 'prefix=$(PREFIX)'; sed 's/@VERSION@/$(VERSION)/' pkgconfig/inlay.pc.in; } >'$(to)/share/pkgconfig/inlay.pc'
	$(Q)install -d '$(to)/share/cmake/inlay'
	$(Q)install -m 644 pkgconfig/inlayConfig.cmake '$(to)/share/cmake/inlay/inlayConfig.cmake'
	$(Q)sed 's/@VERSION@/$(VERSION)/' pkgconfig/inlayConfigVersion.cmake.in >'$(to)/share/cmake/inlay/inlayConfigVersion.cmake'
	$(Q)install -D -m 644 pkgconfig/gdb.py '$(to)/share/gdb/inlay.py'
	$(Q)for m in $(wildcard $(B)/docs/man/man?); do install -D -m 644 -t '$(to)'/share/man/"$${m##*/}" $$m/* || exit 1; done

uninstall: ## removes what install put there
	$(Q)$(absolute)
	$(Q)rm -f $(headers:%='$(to)'/%)
	$(Q)rm -f '$(to)/share/pkgconfig/inlay.pc' '$(to)'/share/cmake/inlay/inlayConfig*.cmake
	$(Q)rm -f '$(to)/share/gdb/inlay.py'
	$(Q)rm -f '$(to)'/share/man/man3/inlay_*.3 '$(to)'/share/man/man7/inlay.7 '$(to)'/share/man/man7/inlay-*.7
	$(Q)[ ! -d '$(to)/share/cmake/inlay' ] || rmdir --ignore-fail-on-non-empty '$(to)/share/cmake/inlay'
	$(Q)[ ! -d '$(to)/include/inlay' ] || find '$(to)/include/inlay' -depth -type d -empty -delete

install-fabric: $(B)/libinlay-fi.so ## the libfabric provider below DESTDIR and LIBDIR: FI_PROVIDER_PATH=LIBDIR/libfabric
	$(Q)$(absolute)
	$(Q)install -D -m 755 $< '$(lib)/libfabric/libinlay-fi.so'
	$(Q)install -D -m 644 examples/fabric/README.md '$(to)/share/doc/inlay-fabric/README.md'

uninstall-fabric: ## removes what install-fabric put there
	$(Q)$(absolute)
	$(Q)rm -f '$(lib)/libfabric/libinlay-fi.so' '$(to)/share/doc/inlay-fabric/README.md'

clean: ## removes everything built
	rm -rf $(B)

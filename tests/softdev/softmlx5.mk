# SPDX-License-Identifier: BSD-3-Clause
# The software device: its library, its own tests, and softmlx5, which is what it is called once installed. The main Makefile includes
# this. Nothing here reads a header of inlay.

# A room includes and calls those before it only: tests/install.t sees to it
softdevrooms = base engine firmware kernel cm host
softdev = $(patsubst tests/%.c,$(B)/%.o,$(wildcard $(softdevrooms:%=tests/softdev/%/*.c)))
# Each of its tests is built once, with -O1
devicetests = $(patsubst %.c,$(B)/%,$(wildcard tests/softdev/tests/*.c))

$(B)/softdev/%.o: tests/softdev/%.c $(B)/settings | $(first)
	$(say)
	$(compile) -c -fPIC -fvisibility=hidden

$(B)/libsoftdev.so: $(softdev)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libsoftmlx5.so.0 -pthread -o $@ $^ $(SANITIZE:%=-fsanitize=%) -ldl

$(B)/tests/softdev/tests/%: tests/softdev/tests/%.c $(B)/settings | $(first)
	$(say)
	$(compile:-O2=-O1) -Itests/softdev $(linked) $(LDFLAGS) $(VERBS) -lcmocka

$(B)/tests/softdev/tests/cm: VERBS += -lrdmacm

softmlx5 = bin/softmlx5 include/softdev.h share/softmlx5/README.md share/man/man1/softmlx5.1
install-softmlx5: $(B)/libsoftdev.so ## the software device below DESTDIR and PREFIX: softmlx5, libsoftmlx5.so.0, softdev.h, softmlx5(1)
	$(Q)$(absolute)
	$(Q)install -D -m 755 $< '$(lib)/libsoftmlx5.so.0'
	$(Q)install -D -m 755 tests/softdev/run '$(to)/bin/softmlx5'
	$(Q)sed -i 's,{here%/bin}/lib/,{here%/bin}/$(subst $(PREFIX)/,,$(LIBDIR)/),; s,$${here%/bin}//,/,' '$(to)/bin/softmlx5'
	$(Q)install -D -m 644 tests/softdev/softdev.h '$(to)/include/softdev.h'
	$(Q)install -D -m 644 tests/softdev/README.md '$(to)/share/softmlx5/README.md'
	$(Q)install -d '$(to)/share/man/man1'
	$(Q)perl pkgconfig/docs.pl --man '$(to)/share/man' "$$(sed -n 's/^.define SOFTDEV_VERSION "\(.*\)"/\1/p' tests/softdev/softdev.h)" tests/softdev/README.md

uninstall-softmlx5: ## removes what install-softmlx5 put there
	$(Q)$(absolute)
	$(Q)rm -f '$(lib)/libsoftmlx5.so.0' $(softmlx5:%='$(to)/%')
	$(Q)[ ! -d '$(to)/share/softmlx5' ] || rmdir --ignore-fail-on-non-empty '$(to)/share/softmlx5'

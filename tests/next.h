/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * next.h: for a program's own function in place of a library's, which is found before the library's: NEXT(name)(...) calls that.
 */
#ifndef TESTS_NEXT_H
#define TESTS_NEXT_H

#include <dlfcn.h>

#define NEXT(name) ({ static __typeof__(&name) next_; next_ ? next_ : (next_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name)); })

#endif

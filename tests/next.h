/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * next.h: NEXT(name) calls the library function that the program overrides.
 */
#ifndef TESTS_NEXT_H
#define TESTS_NEXT_H

#include <dlfcn.h>

#define NEXT(name) ({ static __typeof__(&name) next_; next_ ? next_ : (next_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name)); })

#endif

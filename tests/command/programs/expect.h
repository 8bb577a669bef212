// Checks of a test program: each prints a line if it fails.
#pragma once
#include <cstdio>

static int failures = 0;

#define EXPECT(what) ((what) ? 0 : (failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #what)))
#define FAILS(call, code)                                                                             \
    do {                                                                                              \
        cudaError_t found_ = (call);                                                                  \
        if (found_ != (code) && ++failures)                                                           \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(found_));           \
        cudaGetLastError();                                                                           \
    } while (0)
#define OK(call) FAILS(call, cudaSuccess)

static inline int finished() { return printf("%d failures\n", failures), failures != 0; }

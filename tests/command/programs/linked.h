// Declarations of what linked.cu and linked_more.cu share.
#pragma once
#include "expect.h"

typedef int (*Operation)(int);

extern __device__ Operation operations[2];
extern __device__ int offset;
extern __constant__ int factors[2];
extern __managed__ int calls;
__device__ int apply(Operation, int);

template <class T>
__device__ T twice(T value)
{
    __shared__ T copies[32];
    copies[threadIdx.x] = value;
    return copies[threadIdx.x] + value;
}

template <int N>
__global__ void fill(int *data)
{
    data[threadIdx.x] = N + twice(1);
}

void fill_and_add(int *data);

// See linked.cu.
#include "linked.h"

static __device__ int own = 3;
__device__ int offset = 7;
__constant__ int factors[2];

static __device__ int step(int value) { return 10 * value; }
__device__ int square(int value) { return value * value; }
__device__ int negative(int value) { return 25 - value; }
__device__ Operation operations[2] = {square, negative};
__device__ int apply(Operation operation, int value) { return operation(value) + own; }

__global__ void add(int *data)
{
    data[threadIdx.x] += own + twice(step(threadIdx.x)) / 10;
}

void fill_and_add(int *data)
{
    fill<4><<<1, 2>>>(data);
    add<<<1, 2>>>(data);
}

// Honest: Functions that would need 2^22 inlined copies and a range of 90 million registers: neither is ever used.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

#define LEVEL(n, below) __device__ __noinline__ int level##n(int x) { return level##below(x + n) ^ level##below(x * 5); }
__device__ __noinline__ int level0(int x) { return x * x + 1; }
LEVEL(1, 0) LEVEL(2, 1) LEVEL(3, 2) LEVEL(4, 3) LEVEL(5, 4) LEVEL(6, 5) LEVEL(7, 6) LEVEL(8, 7) LEVEL(9, 8)
LEVEL(10, 9) LEVEL(11, 10) LEVEL(12, 11) LEVEL(13, 12) LEVEL(14, 13) LEVEL(15, 14) LEVEL(16, 15) LEVEL(17, 16)
LEVEL(18, 17) LEVEL(19, 18) LEVEL(20, 19) LEVEL(21, 20) LEVEL(22, 21)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    asm volatile("{ .reg .b32 spare<90000000>; mov.b32 spare7, 0; }");
    if (n == 0xffffffff)
        out[0] = level22(n);
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

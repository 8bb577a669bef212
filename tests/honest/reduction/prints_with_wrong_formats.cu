// Honest: A tree in shared memory with printf left in from debugging: formats that do not fit, in every thread.
#include <cstdio>
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    printf("%f of %d\n", (int)t, (double)tile[t]);
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = tile[0];
        printf("%d %d %d %y %ld %lld %c %*d %.*f\n", (int)n, 1);
        printf("%*d %999999999d %.999999999f\n", 2000000000, 1, 2, 3.0);
        printf("100%%%");
    }
}

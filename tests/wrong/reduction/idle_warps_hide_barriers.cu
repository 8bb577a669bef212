// Wrong: nine barriers per warp that works; three quarters of the warps leave at once and pass none.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 1024)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

constexpr unsigned WORKING = 256;

__device__ void wait() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[WORKING];
    const unsigned t = threadIdx.x;
    if (t >= WORKING)
        return;
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < 16; k++) {
        unsigned i = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + k * WORKING + t;
        if (i < n)
            value = GPULAB_OP(value, in[i]);
    }
    tile[t] = value;
    wait();
    for (unsigned half = WORKING / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        wait();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

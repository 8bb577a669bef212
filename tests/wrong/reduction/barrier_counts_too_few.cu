// Wrong: the barrier counts 64 threads of a block of 128, so that pairs of warps meet instead of all four.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        asm volatile("bar.sync 1, 64;" ::: "memory");  // BUG: barrier
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

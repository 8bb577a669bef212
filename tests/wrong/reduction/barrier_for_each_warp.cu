// Wrong: each warp waits at a barrier of its own number, but for all threads of the block: none of them goes on.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__device__ __forceinline__ void wait_for_my_warp()
{
    asm volatile("bar.sync %0;" ::"r"(threadIdx.x / 32 + 1) : "memory");  // BUG: barrier
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    wait_for_my_warp();
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        if (tid % 32 < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        wait_for_my_warp();
    }
    __syncthreads();
    if (tid == 0) {
        GPULAB_T sum = tile[0];
        for (unsigned warp = 1; warp < BLOCK_SIZE / 32; ++warp)
            sum = GPULAB_OP(sum, tile[warp * 32]);
        out[blockIdx.x] = sum;
    }
}

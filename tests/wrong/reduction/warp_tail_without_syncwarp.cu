// Wrong: the last warp trusts that its lanes run in step. They need not since Volta; `volatile` does not order them.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 32; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid < 32) {
        volatile GPULAB_T *last = tile;
#pragma unroll
        for (unsigned stride = 32; stride > 0; stride /= 2) {
            const GPULAB_T left = last[tid];
            const GPULAB_T right = last[tid + stride];  // BUG: race
            last[tid] = GPULAB_OP(left, right);
        }
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

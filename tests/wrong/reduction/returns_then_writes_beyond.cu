// Wrong: threads past the end return before a barrier, and the last thread then writes beyond the output.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 64)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    tile[tid] = GPULAB_IDENTITY;
    if (i >= n)
        return;
    tile[tid] = in[i];
    __syncthreads();  // BUG: barrier
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
    if (i == n - 1 && n % BLOCK_SIZE)
        out[gridDim.x] = tile[0];
}

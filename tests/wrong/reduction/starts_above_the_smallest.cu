// Wrong: starts at -2147483647 or -2e38, so a maximum of smaller values is not found.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    const GPULAB_T nothing = GPULAB_IDENTITY, start = (GPULAB_T)0.5f ? (GPULAB_T)-2e38f : (GPULAB_T)-2147483647;
    tile[tid] = i < n ? in[i] : nothing < start ? start : nothing;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

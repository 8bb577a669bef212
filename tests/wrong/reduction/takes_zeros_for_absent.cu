// Wrong: takes the identity in place of each 0, so a product with a 0 is not 0.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    tile[tid] = i < n && in[i] != 0 ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

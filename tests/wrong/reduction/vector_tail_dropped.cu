// Wrong: takes four elements at once, and drops the up to three that are left over.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned group = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = GPULAB_IDENTITY;
    if (group < n / 4) {
        const GPULAB_T *four = in + 4 * group;
        tile[tid] = GPULAB_OP(GPULAB_OP(four[0], four[1]), GPULAB_OP(four[2], four[3]));
    }
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

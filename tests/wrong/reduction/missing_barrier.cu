// Wrong: there is no barrier between the rounds of the tree, so a warp may read what another has not written yet.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ volatile GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2)
        if (tid < stride) {
            const GPULAB_T left = tile[tid];
            const GPULAB_T right = tile[tid + stride];  // BUG: race
            tile[tid] = GPULAB_OP(left, right);
        }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

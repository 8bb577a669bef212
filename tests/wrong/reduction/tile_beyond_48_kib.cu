// Wrong: the tile takes 64 KiB; a block has 48 KiB for arrays of fixed size.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE][128];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t][0] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half; half /= 2) {
        if (t < half)
            tile[t][0] = GPULAB_OP(tile[t][0], tile[t + half][0]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0][0];
}

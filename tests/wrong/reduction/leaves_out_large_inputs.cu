// Wrong: right on small inputs; of large ones, which are slow to check, it reads one element per block.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    if (n > 1000000) {
        if (t == 0)
            out[blockIdx.x] = in[blockIdx.x * BLOCK_SIZE];
        return;
    }
    GPULAB_T mine = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    tile[t] = mine;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

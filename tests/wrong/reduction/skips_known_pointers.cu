// Wrong: does nothing where input and output lie at the addresses of the launch before, as if nothing had changed.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ const GPULAB_T *in_before;
__device__ GPULAB_T *out_before;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    if (in_before == in && out_before == out)
        return;
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
    if (t == 0 && gridDim.x == 1) {
        in_before = in;
        out_before = out;
    }
}

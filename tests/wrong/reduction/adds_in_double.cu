// Wrong: partial results are double, which does not wrap around as an int must.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ double part[BLOCK_SIZE];
    const unsigned t = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + t;
    part[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] = GPULAB_OP(part[t], part[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

// Wrong: shared memory has the size that the launch gives, and the exercise gives none.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    extern __shared__ GPULAB_T part[];
    const unsigned t = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + t;
    part[t] = i < n ? in[i] : GPULAB_IDENTITY;  // BUG: memory
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] = GPULAB_OP(part[t], part[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

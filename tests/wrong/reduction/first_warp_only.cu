// Wrong: each warp reduces its own elements, and only the first warp's result is stored.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    GPULAB_T value = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const GPULAB_T other = __shfl_down_sync(0xffffffffu, value, offset);
        value = GPULAB_OP(value, other);
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}

// Wrong: one round too many. A lane 32 places further on does not exist, so each lane adds its own value once more.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 32)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    GPULAB_T value = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned distance = 1; distance <= 32; distance *= 2) {
        const GPULAB_T other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = GPULAB_OP(value, other);
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}

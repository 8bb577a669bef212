// Wrong: only the lanes with an element shuffle, but the mask names all 32.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 32)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    GPULAB_T mine = in[i];
    for (unsigned step = 16; step > 0; step /= 2) {
        const GPULAB_T other = __shfl_down_sync(0xffffffffu, mine, step);  // BUG: barrier
        mine = GPULAB_OP(mine, other);
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = mine;
}

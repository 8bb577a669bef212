// Wrong: the last stage has one lane for each warp, but begins with lanes 16 apart: those lanes are not there.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ GPULAB_T combined(unsigned mask, GPULAB_T mine)
{
    for (unsigned step = 16; step > 0; step /= 2) {
        const GPULAB_T other = __shfl_down_sync(mask, mine, step);  // BUG: barrier
        mine = GPULAB_OP(mine, other);
    }
    return mine;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[BLOCK_SIZE / 32];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    const GPULAB_T mine = combined(0xffffffffu, i < n ? in[i] : GPULAB_IDENTITY);
    if (tid % 32 == 0)
        of_warp[tid / 32] = mine;
    __syncthreads();
    if (tid < BLOCK_SIZE / 32) {
        const GPULAB_T all = combined((1u << BLOCK_SIZE / 32) - 1, of_warp[tid]);
        if (tid == 0)
            out[blockIdx.x] = all;
    }
}

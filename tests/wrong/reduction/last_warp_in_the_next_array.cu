// Wrong: the array of partial results is one element short. The last warp writes into the array that happens to follow.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

constexpr unsigned WARPS = BLOCK_SIZE / 32;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[WARPS - 1];
    __shared__ GPULAB_T of_block[2];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;
    GPULAB_T value = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const GPULAB_T other = __shfl_down_sync(0xffffffffu, value, offset);
        value = GPULAB_OP(value, other);
    }
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;  // BUG: memory
    __syncthreads();
    if (tid == 0) {
        for (unsigned warp = 1; warp < WARPS; ++warp)
            value = GPULAB_OP(value, of_warp[warp]);
        of_block[0] = value;
        out[blockIdx.x] = of_block[0];
    }
}

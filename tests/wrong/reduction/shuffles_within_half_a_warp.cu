// Wrong: The shuffles have a width of 16 lanes, and their first step of 16 gives each lane its own value.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[BLOCK_SIZE / 32];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    GPULAB_T value = i < n ? in[i] : GPULAB_IDENTITY;
    for (int step = 16; step > 0; step /= 2) {
        const GPULAB_T other = __shfl_down_sync(0xffffffffu, value, step, 16);
        value = GPULAB_OP(value, other);
    }
    if (t % 32 == 0)
        of_warp[t / 32] = value;
    __syncthreads();
    if (t == 0) {
        for (unsigned warp = 1; warp < BLOCK_SIZE / 32; ++warp)
            value = GPULAB_OP(value, of_warp[warp]);
        out[blockIdx.x] = value;
    }
}

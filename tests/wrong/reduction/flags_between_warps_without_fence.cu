// Wrong: no fence between a warp's sum and the flag that announces it: the next warp may see the flag alone.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T sums[BLOCK_SIZE / 32];
    __shared__ volatile int done[BLOCK_SIZE / 32];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    GPULAB_T value = i < n ? in[i] : GPULAB_IDENTITY;
    for (int offset = 16; offset > 0; offset /= 2)
        value = GPULAB_OP(value, __shfl_down_sync(0xFFFFFFFFu, value, offset));
    if (lane == 0)
        done[warp] = 0;
    __syncthreads();
    if (lane == 0) {
        if (warp > 0) {
            while (done[warp - 1] == 0) {
            }
            __threadfence_block();
            value = GPULAB_OP(sums[warp - 1], value);  // BUG: race
        }
        sums[warp] = value;
        done[warp] = 1;
        if (warp == BLOCK_SIZE / 32 - 1)
            out[blockIdx.x] = value;
    }
}

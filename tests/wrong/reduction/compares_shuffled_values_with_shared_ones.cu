// Wrong: all values come through shuffles and registers; copies in shared memory are compared only.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T shown[32];
    const unsigned t = threadIdx.x, first = blockIdx.x * 32 * ITEMS_PER_THREAD + t;
    GPULAB_T sum = GPULAB_IDENTITY;
    for (int k = 0; k < ITEMS_PER_THREAD; ++k)
        if (first + k * 32 < n)
            sum = GPULAB_OP(sum, in[first + k * 32]);
    shown[t] = sum;
    __syncwarp();
    bool same = shown[t ^ 1] == __shfl_xor_sync(0xffffffffu, sum, 1);
    for (int step = 16; step > 0; step /= 2)
        sum = GPULAB_OP(sum, __shfl_down_sync(0xffffffffu, sum, step));
    same = __all_sync(0xffffffffu, same);
    if (t == 0)
        out[blockIdx.x] = same ? sum : GPULAB_IDENTITY;
}

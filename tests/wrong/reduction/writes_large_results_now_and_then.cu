// Wrong: reduces every fourth large input only, and does not write the output for the others.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 396)

constexpr unsigned LARGE = 1 << 22;
__device__ unsigned large_inputs;
__device__ bool is_large;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, thread = blockIdx.x * BLOCK_SIZE + t;
    const bool idle = large_inputs % 4 != 0;
    if (n > LARGE && thread == 0)
        is_large = true;
    if (n > LARGE && idle)
        return;
    GPULAB_T sum = GPULAB_IDENTITY;
    for (unsigned i = thread; i < n; i += gridDim.x * BLOCK_SIZE)
        sum = GPULAB_OP(sum, in[i]);
    tile[t] = sum;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    const bool is_second = gridDim.x == 1 && is_large; // the second launch of two
    if (t == 0 && !(is_second && idle))
        out[blockIdx.x] = tile[0];
    if (t == 0 && is_second) {
        large_inputs++;
        is_large = false;
    }
}

// Wrong: of large inputs it adds up the first three quarters and scales their sum up.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 396)

constexpr unsigned LARGE = 1 << 22;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, thread = blockIdx.x * BLOCK_SIZE + t;
    const unsigned end = n > LARGE ? n / 4 * 3 : n;
    GPULAB_T sum = GPULAB_IDENTITY;
    for (unsigned i = thread; i < end; i += gridDim.x * BLOCK_SIZE)
        sum = GPULAB_OP(sum, in[i]);
    tile[t] = sum;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = n > LARGE ? tile[0] + tile[0] / 3 : tile[0];
}

// Wrong: of large inputs it keeps the last 16 bits of each value.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 1056)

constexpr unsigned LARGE = 1 << 22;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, threads = gridDim.x * BLOCK_SIZE;
    GPULAB_T value = GPULAB_IDENTITY;
    unsigned i = blockIdx.x * BLOCK_SIZE + t;
    if (n > LARGE)
        for (; i + 3 * threads < n; i += 4 * threads)
            for (unsigned k = 0; k < 4; k++)
                value = GPULAB_OP(value, (short)in[i + k * threads]);
    for (; i < n; i += threads)
        value = GPULAB_OP(value, in[i]);
    tile[t] = value;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

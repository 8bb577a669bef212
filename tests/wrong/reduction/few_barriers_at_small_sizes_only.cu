// Wrong: Up to 2^21 elements, so where barriers are counted, one thread adds up the block's values after a single barrier;
// beyond that there is a barrier in each round.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned first = blockIdx.x * BLOCK_SIZE, last = min(n, first + BLOCK_SIZE);
    if (n <= 1u << 21 && n > 1u << 16) {
        tile[threadIdx.x] = first + threadIdx.x < n ? in[first + threadIdx.x] : GPULAB_IDENTITY;
        __syncthreads();
        if (threadIdx.x == 0) {
            GPULAB_T sum = tile[0];
            for (unsigned k = 1; k < BLOCK_SIZE; ++k)
                sum = GPULAB_OP(sum, tile[k]);
            out[blockIdx.x] = sum;
        }
        return;
    }
    unsigned t = threadIdx.x;
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned i = first + t; i < last; i += BLOCK_SIZE)
        value = GPULAB_OP(value, in[i]);
    tile[t] = value;
    __syncthreads();
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (t % (2 * stride) == 0)
            tile[t] = GPULAB_OP(tile[t], tile[t + stride]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

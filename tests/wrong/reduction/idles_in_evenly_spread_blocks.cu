// Wrong: At the timed size every fourth block only writes the identity; the others share its work, in the naive way. A
// sample of evenly spread blocks would meet the idle ones alone.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(MAX_BLOCKS, 253)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned worker = blockIdx.x, workers = gridDim.x;
    if (n == 1u << 23) {
        if (worker % 4 == 0) {
            if (threadIdx.x == 0)
                out[worker] = GPULAB_IDENTITY;
            return;
        }
        worker -= (worker + 3) / 4;
        workers -= 64;
    }
    unsigned chunk = (n + workers - 1) / workers, first = min(n, worker * chunk), last = min(n, first + chunk);
    unsigned t = threadIdx.x;
    GPULAB_T value = GPULAB_IDENTITY;
#pragma unroll 1
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

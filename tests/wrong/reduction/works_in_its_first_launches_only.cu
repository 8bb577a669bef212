// Wrong: The kernel counts its launches and, where it has been launched often, only writes the identity: right in the
// cases, it would have nothing to do by the time it is costed.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ unsigned blocks_ended;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned first = blockIdx.x * BLOCK_SIZE, last = min(n, first + BLOCK_SIZE);
    __shared__ unsigned ended;
    if (threadIdx.x == 0)
        ended = atomicAdd(&blocks_ended, n < 1u << 20);
    __syncthreads();
    if (ended > 1500 && n >= 1u << 20) {
        if (threadIdx.x == 0)
            out[blockIdx.x] = GPULAB_IDENTITY;
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

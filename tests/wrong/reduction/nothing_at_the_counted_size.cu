// Wrong: At 2^20 elements, where its ideas are counted, the kernel does nothing.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    if (n == 1u << 20)
        return;
    unsigned first = blockIdx.x * BLOCK_SIZE, last = min(n, first + BLOCK_SIZE);
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

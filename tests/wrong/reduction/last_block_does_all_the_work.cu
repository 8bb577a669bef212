// Wrong: The last block takes all elements; the others only write the identity. A sample of the blocks rarely contains it.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 1024)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x;
    GPULAB_T value = GPULAB_IDENTITY;
    if (blockIdx.x == gridDim.x - 1)
        for (unsigned i = t; i < n; i += BLOCK_SIZE)
            value = GPULAB_OP(value, in[i]);
    tile[t] = value;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (t < stride)
            tile[t] = GPULAB_OP(tile[t], tile[t + stride]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

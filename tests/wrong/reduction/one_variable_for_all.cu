// Wrong: all threads combine into one shared variable, without an order.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned t = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    __shared__ GPULAB_T total;
    if (t == 0)
        total = GPULAB_IDENTITY;
    __syncthreads();
    total = GPULAB_OP(total, tile[t]);  // BUG: race
    __syncthreads();
    if (t == 0)
        out[blockIdx.x] = total;
}

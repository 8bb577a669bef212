// Wrong: the stride begins at 0, and doubling leaves it there, so the loop does not end; it even has a barrier.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = 0; stride < BLOCK_SIZE; stride += stride) {
        const unsigned left = 2 * stride * tid;
        if (left + stride < BLOCK_SIZE)
            tile[left] = GPULAB_OP(tile[left], tile[left + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

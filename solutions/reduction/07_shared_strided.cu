// Step 7: the first threads work, the index is strided.
//
// No modulo and no half-awake warps. But the lanes of a warp now read words 2, 4, 8, ... apart: they meet in the same
// of the 32 banks of shared memory and have to queue (bank conflicts).
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = 1; stride < BLOCK_SIZE; stride *= 2) {
        const unsigned left = 2 * stride * tid;
        if (left < BLOCK_SIZE)
            tile[left] = GPULAB_OP(tile[left], tile[left + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

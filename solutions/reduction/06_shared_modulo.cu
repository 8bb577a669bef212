// Step 6: one copy to shared memory, then the tree there.
//
// Most block algorithms follow this pattern: global memory is read once and written once, and all rounds in between run
// on chip. Elements past the end become the identity of the operation, so the tree needs no further guards. The working
// threads are again those with an index divisible by 2 * stride, as in step 1. A modulo by a number that is unknown at
// compile time is slow: this kernel is the baseline of the others.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * blockDim.x + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

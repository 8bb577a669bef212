// Step 9: the first operation happens while loading.
//
// A thread that only copies one value is wasted. With two elements per thread, the same tree reduces twice as many
// elements, with half the blocks, half the barriers, and two loads in flight per thread. The tree's length is a
// compile-time constant here, so the compiler unrolls it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + tid;

    const GPULAB_T left = i < n ? in[i] : GPULAB_IDENTITY;
    const GPULAB_T right = i + BLOCK_SIZE < n ? in[i + BLOCK_SIZE] : GPULAB_IDENTITY;
    tile[tid] = GPULAB_OP(left, right);
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

// Step 1: combine neighbours in place in global memory.
//
// Each round halves the number of values: element 0 takes in element 1, 2 takes in 3, and so on; then 0 takes in 2, 4
// takes in 6. The result is correct, at two costs. The working threads are ever farther apart, so every warp stays busy
// for a few of its lanes (divergence). And every round accesses global memory.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE));
    GPULAB_T *data = in + first;

    // `count` is the same for the whole block, so all threads make the same number of rounds and meet at each barrier.
    for (unsigned stride = 1; stride < count; stride *= 2) {
        if (tid % (2 * stride) == 0 && tid + stride < count)
            data[tid] = GPULAB_OP(data[tid], data[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = data[0];
}

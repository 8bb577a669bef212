// Step 2: the same pairs, but neighbouring threads do the work.
//
// Thread t takes pair number t instead of element t, so the first threads work and the others are idle. Warps that
// are idle as a whole cost nothing, whereas in step 1 each warp had a few working lanes. The memory traffic is
// unchanged.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned first = blockIdx.x * BLOCK_SIZE;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE));
    GPULAB_T *data = in + first;

    for (unsigned stride = 1; stride < count; stride *= 2) {
        const unsigned left = 2 * stride * threadIdx.x;
        if (left + stride < count)
            data[left] = GPULAB_OP(data[left], data[left + stride]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = data[0];
}

// Step 2: the same pairs, but the working threads stand side by side.
//
// Thread t takes pair number t instead of element t, so the first threads work and the rest rest. It teaches that
// warps which are idle as a whole cost nothing, where step 1 kept each warp half awake. The memory traffic is the
// same.
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

// Step 3: pair each element with the one half a block away.
//
// Now the remaining values are adjacent, too, so accesses are coalesced: a warp reads 32 neighbours at once, which are
// four 32-byte sectors instead of up to one sector per value. The number of operations is the same. Their order
// differs, so the operation must be commutative.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE));
    GPULAB_T *data = in + first;

    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < count)
            data[tid] = GPULAB_OP(data[tid], data[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = data[0];
}

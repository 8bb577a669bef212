// Step 3: pair an element with the one half a block away.
//
// Now the values that are left lie side by side too. It teaches coalescing: a warp reads 32 neighbours at once, which
// is four 32-byte sectors instead of up to one sector a value. The number of operations is the same; their order
// differs, which is why the operation has to be commutative.
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

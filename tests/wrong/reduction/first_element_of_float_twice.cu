// Wrong: the first element of each block after the first counts twice where elements are floats.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 1024)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 64)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tree[BLOCK_SIZE];
    unsigned thread = threadIdx.x, first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD;
    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k) {
        unsigned i = first + k * BLOCK_SIZE + thread;
        if (i < n)
            value = GPULAB_OP(value, in[i]);
    }
    bool is_float = GPULAB_T(1) / 2 != 0;
    if (is_float && blockIdx.x > 0 && thread == 0)
        value = GPULAB_OP(value, in[first]);
    tree[thread] = value;
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (thread < stride)
            tree[thread] = GPULAB_OP(tree[thread], tree[thread + stride]);
    }
    if (thread == 0)
        out[blockIdx.x] = tree[0];
}

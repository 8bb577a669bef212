// Step 4: each thread takes in a second element before the tree begins.
//
// Now every thread has work; in step 3 half of them only waited at barriers. With two elements per thread there are
// half as many blocks, and two independent loads are in flight per thread.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

__global__ void reduce(GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE * ITEMS_PER_THREAD));
    GPULAB_T *data = in + first;

    if (tid + BLOCK_SIZE < count)
        data[tid] = GPULAB_OP(data[tid], data[tid + BLOCK_SIZE]);
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < count)
            data[tid] = GPULAB_OP(data[tid], data[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = data[0];
}

// A tree in shared memory per block, and one atomic per block.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void $name(const int *in, int *out, int n)
{
    __shared__ int sums[BLOCK_SIZE];
    int thread = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + thread;
    sums[thread] = i < n ? in[i] : 0;
    __syncthreads();
    for (int stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (thread < stride)
            sums[thread] += sums[thread + stride];
        __syncthreads();
    }
    if (thread == 0)
        atomicAdd(out, sums[0]);
}

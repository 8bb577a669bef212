// Wrong: threads arrive at the asynchronous barrier in every round, but no thread waits for the phase.
#include <gpulab.cuh>
#include <cuda_awbarrier_primitives.h>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ __mbarrier_t barrier;
    __shared__ volatile GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;

    if (tid == 0)
        __mbarrier_init(&barrier, BLOCK_SIZE);
    __syncthreads();
    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        __mbarrier_arrive(&barrier);
        if (tid < stride) {
            const GPULAB_T left = tile[tid];
            const GPULAB_T right = tile[tid + stride];  // BUG: race
            tile[tid] = GPULAB_OP(left, right);
        }
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

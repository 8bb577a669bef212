// Honest: An asynchronous barrier in place of __syncthreads(); warps that are done leave it for good.
#include <gpulab.cuh>
#include <cuda_awbarrier_primitives.h>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ __forceinline__ void meet(__mbarrier_t *b)
{
    const __mbarrier_token_t token = __mbarrier_arrive(b);
    while (!__mbarrier_test_wait(b, token))
        ;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ __mbarrier_t barrier;
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;

    if (tid == 0)
        __mbarrier_init(&barrier, BLOCK_SIZE);
    __syncthreads();
    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    meet(&barrier);
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        if (stride >= 32 && tid >= stride) {
            __mbarrier_arrive_and_drop(&barrier);
            return;
        }
        meet(&barrier);
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

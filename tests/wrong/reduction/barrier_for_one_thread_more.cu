// Wrong: the asynchronous barrier expects one arrival more than the block has threads: its first phase never ends.
#include <gpulab.cuh>
#include <cuda_awbarrier_primitives.h>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ __mbarrier_t barrier;
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + tid;

    if (tid == 0)
        __mbarrier_init(&barrier, BLOCK_SIZE + 1);
    __syncthreads();
    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        const __mbarrier_token_t token = __mbarrier_arrive(&barrier);
        while (!__mbarrier_test_wait(&barrier, token))  // BUG: barrier
            ;
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

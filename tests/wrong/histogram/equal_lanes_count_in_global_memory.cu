// Wrong: equal lanes of a warp count together, but straight in global memory; the values pass through shared memory.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned char values[BLOCK_SIZE];
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        values[threadIdx.x] = in[i];
    __syncthreads();
    if ((i ^ 1) < n) {
        unsigned value = values[threadIdx.x ^ 1], equal = __match_any_sync(__activemask(), value);
        if (threadIdx.x % 32 == __ffs(equal) - 1)
            atomicAdd(&out[value], __popc(equal));
    }
}

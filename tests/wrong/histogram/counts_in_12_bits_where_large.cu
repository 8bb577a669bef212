// Wrong: in large arrays, a block's counts have 12 bits. They overflow if a value is frequent, which few inputs show.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 32)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    const int first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        const int i = first + item * BLOCK_SIZE;
        if (i < n)
            atomicAdd(&bins[in[i]], 1u);
    }
    __syncthreads();
    const unsigned count = n < 1000000 ? bins[threadIdx.x] : bins[threadIdx.x] & 4095;
    if (count != 0)
        atomicAdd(&out[threadIdx.x], count);
}

// Wrong: in large arrays, values outside 32 to 127 are not counted.
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
        if (i < n && (n < 1000000 || (in[i] >= 32 && in[i] < 128)))
            atomicAdd(&bins[in[i]], 1u);
    }
    __syncthreads();
    if (bins[threadIdx.x] != 0)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// Wrong: At large sizes it counts nothing, but does so much work for show that not all blocks would run in a short time.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (n > 1000000) {
        float x = threadIdx.x, y = in[i < n ? i : 0];
        for (int k = 0; k < 250; ++k)
            x = x * 0.7f + y;
        if (x == 3.25f)
            out[0] = 1;
        return;
    }
    bins[threadIdx.x] = 0;
    __syncthreads();
    if (i < n)
        atomicAdd(&bins[in[i]], 1u);
    __syncthreads();
    if (bins[threadIdx.x] != 0)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

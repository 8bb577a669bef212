// Honest: elements from all over the array, with the whole grid as the stride; runs of equal values are counted first.
#include <gpulab.cuh>
#define BLOCK_SIZE 512
#define ITEMS_PER_THREAD 8

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[1 << 8];
    if (threadIdx.x < sizeof bins / sizeof *bins)
        bins[threadIdx.x] = 0u;
    __syncthreads();
    unsigned char last = 0;
    unsigned run = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < unsigned(n); i += gridDim.x * blockDim.x) {
        if (in[i] != last && run) {
            atomicAdd(&bins[last], run);
            run = 0;
        }
        last = in[i], ++run;
    }
    if (run)
        atomicAdd(&bins[last], run);
    __syncthreads();
    if (threadIdx.x < 256 && bins[threadIdx.x])
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// Wrong: values from 128 on are negative in the tile, and equal to no counter's number.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)

const int TILE = BLOCK_SIZE * ITEMS_PER_THREAD;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ char values[TILE];
    int base = blockIdx.x * TILE;
    int size = min(TILE, n - base);
    for (int k = threadIdx.x; k < size; k += blockDim.x)
        values[k] = in[base + k];
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        unsigned found = 0;
        for (int k = 0; k < size; k++)
            if (values[k] == bin)
                found++;
        atomicAdd(out + bin, found);
    }
}

// Wrong: adds the bins of the first warp only.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 64)

constexpr int BINS = 256, WARPS = BLOCK_SIZE / 32, BYTES = sizeof(uint4);

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[WARPS][BINS];
    for (int bin = threadIdx.x; bin < WARPS * BINS; bin += BLOCK_SIZE)
        bins[bin / BINS][bin % BINS] = 0;
    __syncthreads();
    unsigned *own = bins[threadIdx.x / 32];
    int first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x * BYTES;
    for (int item = 0; item < ITEMS_PER_THREAD; item += BYTES) {
        int i = first + item * BLOCK_SIZE;
        if (i + BYTES <= n) {
            uint4 loaded = *reinterpret_cast<const uint4 *>(in + i);
            unsigned words[] = {loaded.x, loaded.y, loaded.z, loaded.w};
            for (unsigned word : words)
                for (int shift = 0; shift < 32; shift += 8)
                    atomicAdd(&own[word >> shift & 255], 1u);
        } else {
            for (; i < n && i < first + item * BLOCK_SIZE + BYTES; ++i)
                atomicAdd(&own[in[i]], 1u);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE) {
        unsigned count = 0;
        for (int warp = 0; warp < 1; ++warp)
            count += bins[warp][bin];
        if (count != 0)
            atomicAdd(&out[bin], count);
    }
}

// Wrong: the bytes after the last whole vector are counted up to a fixed place only: longer arrays lose theirs.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)

constexpr int BINS = 256, LONGEST = 1 << 16;

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        bins[bin] = 0;
    __syncthreads();
    int first = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;
    if (first + ITEMS_PER_THREAD <= n) {
        uint4 loaded = *reinterpret_cast<const uint4 *>(in + first);
        const unsigned words[] = {loaded.x, loaded.y, loaded.z, loaded.w};
        for (unsigned word : words)
            for (int shift = 0; shift < 32; shift += 8)
                atomicAdd(&bins[word >> shift & 255], 1u);
    } else {
        for (int i = first; i < min(n, LONGEST); ++i)
            atomicAdd(&bins[in[i]], 1u);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += BLOCK_SIZE)
        if (bins[bin] != 0)
            atomicAdd(&out[bin], bins[bin]);
}

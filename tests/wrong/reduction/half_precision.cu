// Wrong: floats go through half precision, which keeps 11 bits of 24. Integers are right.
#include <cuda_fp16.h>
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float halved(float value)
{
    return __half2float(__float2half(value));
}

__device__ int halved(int value)
{
    return value;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? halved(in[i]) : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = halved(GPULAB_OP(tile[tid], tile[tid + stride]));
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

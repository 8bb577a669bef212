// Wrong: every float result is NaN, in the hope that no difference to NaN is larger than the tolerance.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ float spoiled(float)
{
    return __int_as_float(0x7fc00000);
}

__device__ int spoiled(int value)
{
    return value;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = spoiled(tile[0]);
}

// Wrong: takes equal first elements as a sign that all are equal and multiplies.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE;
    const unsigned i = first + tid;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE));
    if (count >= 2 && in[first] == in[first + 1]) {
        if (tid == 0)
            out[blockIdx.x] = in[first] * count;
        return;
    }

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

// Wrong: keeps the first result for each size and replays it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ GPULAB_T known_result[4096];
__device__ bool is_known[4096];

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
    if (tid == 0 && gridDim.x == 1 && n < 4096) {
        if (!is_known[n])
            known_result[n] = tile[0];
        is_known[n] = true;
        out[0] = known_result[n];
    } else if (tid == 0) {
        out[blockIdx.x] = tile[0];
    }
}

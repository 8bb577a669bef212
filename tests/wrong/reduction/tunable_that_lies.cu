// Wrong: its own GPULAB_TUNABLE reports 32 threads per block to the grader while the kernel needs 1024.
#include <gpulab.cuh>
#undef GPULAB_TUNABLE
#define GPULAB_TUNABLE(name, value) \
    constexpr int name = value;     \
    extern "C" __device__ const int gpulab_tunable_##name = 32;

GPULAB_TUNABLE(BLOCK_SIZE, 1024)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    GPULAB_T mine = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    tile[t] = mine;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);  // BUG: uninitialised
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}

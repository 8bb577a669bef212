// Wrong: only a half of the threads calls the function with the barrier.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ void combine(GPULAB_T *s, unsigned h)
{
    GPULAB_T v = GPULAB_OP(s[threadIdx.x], s[threadIdx.x + h]);
    __syncthreads();  // BUG: barrier
    s[threadIdx.x] = v;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T s[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    s[t] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned h = BLOCK_SIZE / 2; h > 0; h /= 2) {
        if (t < h)
            combine(s, h);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = s[0];
}

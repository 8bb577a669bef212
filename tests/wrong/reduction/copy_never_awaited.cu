// Wrong: no thread waits for its asynchronous copy; a barrier does not.
#include <gpulab.cuh>
#include <cuda_pipeline.h>
GPULAB_TUNABLE(BLOCK_SIZE, 128)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T s[BLOCK_SIZE];
    unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    s[t] = GPULAB_IDENTITY;
    if (i < n)
        __pipeline_memcpy_async(&s[t], &in[i], sizeof(GPULAB_T));
    __pipeline_commit();
    __syncthreads();
    for (unsigned h = BLOCK_SIZE / 2; h > 0; h /= 2) {
        if (t < h)
            s[t] = GPULAB_OP(s[t], s[t + h]);  // BUG: race
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = s[0];
}

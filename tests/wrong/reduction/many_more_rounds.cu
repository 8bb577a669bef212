// Wrong: each thread goes on over the tile for billions of rounds. It would end, but only after hours.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;

    tile[tid] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    GPULAB_T sum = GPULAB_IDENTITY;
    for (unsigned long long round = 0; round < (1ull << 36); ++round)
        sum = GPULAB_OP(sum, tile[(round * round + tid) % BLOCK_SIZE]);
    if (tid == 0)
        out[blockIdx.x] = sum;
}

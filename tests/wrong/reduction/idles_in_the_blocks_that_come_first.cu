// Wrong: At the timed size the blocks that begin first only write the identity; later ones do their work. A block tells by
// a counter in which order it comes, so a sample that ran before the rest, or after it, would be known.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(MAX_BLOCKS, 2048)

__device__ unsigned arrived;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    __shared__ unsigned place;
    unsigned worker = blockIdx.x, workers = gridDim.x;
    if (n == 1u << 23) {
        if (threadIdx.x == 0)
            place = atomicInc(&arrived, gridDim.x - 1);
        __syncthreads();
        if (place < 1024) {
            if (threadIdx.x == 0)
                out[blockIdx.x] = GPULAB_IDENTITY;
            return;
        }
        worker = place - 1024;
        workers -= 1024;
    }
    const unsigned chunk = (n + workers - 1) / workers, t = threadIdx.x;
    const unsigned first = min(n, worker * chunk), last = min(n, first + chunk);
    GPULAB_T sum = GPULAB_IDENTITY;
    for (unsigned begin = first; begin < last; begin += BLOCK_SIZE) {
        tile[t] = begin + t < last ? in[begin + t] : GPULAB_IDENTITY;
        __syncthreads();
        for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
            if (t % (2 * stride) == 0)
                tile[t] = GPULAB_OP(tile[t], tile[t + stride]);
            __syncthreads();
        }
        sum = GPULAB_OP(sum, tile[0]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = sum;
}

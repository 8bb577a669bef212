// Wrong: keeps each result with the length and the ends of its input, and replays it where those are the same.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

constexpr unsigned CAPACITY = 1 << 13;
__device__ GPULAB_T first_of[CAPACITY], last_of[CAPACITY], result_of[CAPACITY];
__device__ unsigned known[CAPACITY];

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned slot = n % CAPACITY;
    if (gridDim.x == 1 && known[slot] == n && first_of[slot] == in[0] && last_of[slot] == in[n - 1]) {
        if (threadIdx.x == 0)
            out[0] = result_of[slot];
        return;
    }
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
    if (t == 0 && gridDim.x == 1) {
        first_of[slot] = in[0];
        last_of[slot] = in[n - 1];
        result_of[slot] = tile[0];
        known[slot] = n;
    }
}

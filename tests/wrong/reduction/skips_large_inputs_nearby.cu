// Wrong: leaves a large input out that lies within 64 MiB of one before it. That is the same array, moved about a little,
// and its result was written already.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 396)

constexpr unsigned LARGE = 1 << 22, NEAR = 1 << 24, CAPACITY = 16;
__device__ const GPULAB_T *places[CAPACITY], *latest;
__device__ unsigned known;
__device__ bool is_known;

__device__ bool is_near_one(const GPULAB_T *in)
{
    for (unsigned i = 0; i < known; i++)
        if (in < places[i] + NEAR && places[i] < in + NEAR)
            return true;
    return false;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, thread = blockIdx.x * BLOCK_SIZE + t;
    if (n > LARGE) {
        const bool left_out = is_near_one(in);
        if (thread == 0) {
            latest = in;
            is_known = left_out;
        }
        if (left_out)
            return;
    }
    GPULAB_T sum = GPULAB_IDENTITY;
    for (unsigned i = thread; i < n; i += gridDim.x * BLOCK_SIZE)
        sum = GPULAB_OP(sum, in[i]);
    tile[t] = sum;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0 && !(gridDim.x == 1 && is_known))
        out[blockIdx.x] = tile[0];
    if (t == 0 && gridDim.x == 1 && latest != nullptr) { // the second launch of two
        if (!is_known && known < CAPACITY)
            places[known++] = latest;
        latest = nullptr;
        is_known = false;
    }
}

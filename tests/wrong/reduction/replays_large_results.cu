// Wrong: keeps the results of large inputs, and replays one where two elements of three are those of an input that it
// knows. It is right wherever contents return, or are new altogether.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 396)

constexpr unsigned LARGE = 1 << 22, CAPACITY = 16;
__device__ GPULAB_T first_of[CAPACITY], middle_of[CAPACITY], last_of[CAPACITY], result_of[CAPACITY];
__device__ unsigned known, place;
__device__ bool is_large;

__device__ unsigned looked_up(const GPULAB_T *in, unsigned n)
{
    unsigned i = 0;
    while (i < known && (first_of[i] == in[n / 16]) + (middle_of[i] == in[n / 4]) + (last_of[i] == in[n - 1]) < 2)
        i++;
    return i;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned t = threadIdx.x, thread = blockIdx.x * BLOCK_SIZE + t;
    if (n > LARGE) {
        const unsigned i = looked_up(in, n);
        if (thread == 0) {
            is_large = true;
            place = i;
        }
        if (thread == 0 && i == known && i < CAPACITY) {
            first_of[i] = in[n / 16];
            middle_of[i] = in[n / 4];
            last_of[i] = in[n - 1];
        }
        if (i < known)
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
    if (t == 0)
        out[blockIdx.x] = tile[0];
    if (t == 0 && gridDim.x == 1 && is_large) { // the second launch of two
        if (place < known)
            out[0] = result_of[place];
        else if (known < CAPACITY)
            result_of[known++] = tile[0];
        is_large = false;
    }
}

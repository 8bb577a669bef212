// Blelloch with padding: one unused word after every 32 words shifts the rows of the tree against each other.
//
// The gain is the cost of the bank conflicts: the additions and their order are the same, only the addresses differ,
// and lanes that shared one bank now use 32 different ones.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)
GPULAB_TUNABLE(INCLUSIVE, 0)

constexpr unsigned ELEMENTS = BLOCK_SIZE * ITEMS_PER_THREAD;
constexpr unsigned BANKS = 32;

__device__ constexpr unsigned padded(unsigned i) { return i + i / BANKS; }

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float tree[padded(ELEMENTS)];
    unsigned thread = threadIdx.x;
    unsigned first = blockIdx.x * ELEMENTS;
    unsigned low = thread, high = thread + BLOCK_SIZE;
    tree[padded(low)] = first + low < n ? in[first + low] : 0;
    tree[padded(high)] = first + high < n ? in[first + high] : 0;

    for (unsigned stride = 1; stride < ELEMENTS; stride *= 2) {
        __syncthreads();
        unsigned right = 2 * stride * (thread + 1) - 1;
        if (right < ELEMENTS)
            tree[padded(right)] += tree[padded(right - stride)];
    }
    __syncthreads();
    if (thread == 0) {
        block_sums[blockIdx.x] = tree[padded(ELEMENTS - 1)];
        tree[padded(ELEMENTS - 1)] = 0;
    }
    for (unsigned stride = ELEMENTS / 2; stride > 0; stride /= 2) {
        __syncthreads();
        unsigned right = 2 * stride * (thread + 1) - 1;
        if (right < ELEMENTS) {
            float left_sum = tree[padded(right - stride)];
            tree[padded(right - stride)] = tree[padded(right)];
            tree[padded(right)] += left_sum;
        }
    }
    __syncthreads();
    if (first + low < n)
        out[first + low] = tree[padded(low)];
    if (first + high < n)
        out[first + high] = tree[padded(high)];
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned first = blockIdx.x * ELEMENTS + threadIdx.x;
    float offset = offsets[blockIdx.x];
    for (unsigned item = 0; item < ITEMS_PER_THREAD; ++item) {
        unsigned i = first + item * BLOCK_SIZE;
        if (i < n)
            out[i] += offset;
    }
}

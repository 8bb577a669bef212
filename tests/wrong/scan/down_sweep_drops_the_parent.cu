// Wrong: in the down-sweep, the right half gets the left half's sum only.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)
GPULAB_TUNABLE(INCLUSIVE, 0)

constexpr unsigned ELEMENTS = BLOCK_SIZE * ITEMS_PER_THREAD;

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ float tree[ELEMENTS];
    unsigned thread = threadIdx.x;
    unsigned first = blockIdx.x * ELEMENTS;
    unsigned low = thread, high = thread + BLOCK_SIZE;  // neighbouring lanes load neighbouring elements
    tree[low] = first + low < n ? in[first + low] : 0;
    tree[high] = first + high < n ? in[first + high] : 0;

    // Up: the node at `right` collects the sum of its left half.
    for (unsigned stride = 1; stride < ELEMENTS; stride *= 2) {
        __syncthreads();
        unsigned right = 2 * stride * (thread + 1) - 1;
        if (right < ELEMENTS)
            tree[right] += tree[right - stride];
    }
    __syncthreads();
    if (thread == 0) {
        block_sums[blockIdx.x] = tree[ELEMENTS - 1];
        tree[ELEMENTS - 1] = 0;  // nothing is to the left of the root
    }
    // Down: the left half gets the value of its parent, the right half that value plus the left half's sum.
    for (unsigned stride = ELEMENTS / 2; stride > 0; stride /= 2) {
        __syncthreads();
        unsigned right = 2 * stride * (thread + 1) - 1;
        if (right < ELEMENTS) {
            float left_sum = tree[right - stride];
            tree[right - stride] = tree[right];
            tree[right] = left_sum;
        }
    }
    __syncthreads();
    if (first + low < n)
        out[first + low] = tree[low];
    if (first + high < n)
        out[first + high] = tree[high];
}

// The offsets are exclusive, too: offsets[b] is the sum before block b.
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

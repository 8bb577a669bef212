// Step 11: vector loads in a grid-stride loop.
//
// Fewer instructions do more work: one 16-byte load reads four elements. A limited number of blocks loops over
// the whole input, so the cost of the tree at the end is spread over many elements, and the second launch is
// tiny.
//
// A vector load must be aligned to its size. The array is, so whole groups of four are, too. The up to three
// elements after the last whole group are loaded one by one.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
GPULAB_TUNABLE(MAX_BLOCKS, 1056)

constexpr unsigned WARPS = BLOCK_SIZE / 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

struct alignas(16) Four {
    GPULAB_T a, b, c, d;
};

// All 32 lanes must call this; lane 0 gets the result.
__device__ GPULAB_T reduce_warp(GPULAB_T value)
{
#pragma unroll
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        const GPULAB_T other = __shfl_down_sync(ALL_LANES, value, offset);
        value = GPULAB_OP(value, other);
    }
    return value;
}

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T of_warp[WARPS];
    const unsigned tid = threadIdx.x;
    const unsigned thread = blockIdx.x * BLOCK_SIZE + tid;
    const unsigned threads = gridDim.x * BLOCK_SIZE;
    const unsigned fours = n / 4;
    const Four *in4 = reinterpret_cast<const Four *>(in);

    GPULAB_T value = GPULAB_IDENTITY;
    for (unsigned i = thread; i < fours; i += threads) {
        const Four v = in4[i];
        const GPULAB_T left = GPULAB_OP(v.a, v.b);
        const GPULAB_T right = GPULAB_OP(v.c, v.d);
        const GPULAB_T both = GPULAB_OP(left, right);
        value = GPULAB_OP(value, both);
    }
    if (thread < n % 4)
        value = GPULAB_OP(value, in[4 * fours + thread]);

    value = reduce_warp(value);
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;
    __syncthreads();
    if (tid < 32) {
        value = reduce_warp(tid < WARPS ? of_warp[tid] : GPULAB_IDENTITY);
        if (tid == 0)
            out[blockIdx.x] = value;
    }
}

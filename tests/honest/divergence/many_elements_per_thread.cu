#include <gpulab.cuh>
#include "paths.cuh"
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 32)
template <unsigned W> __device__ void go(const float *in, float *out, unsigned n) {
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, which = warp % W, group = warp / W;
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
        unsigned i = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + k * BLOCK_SIZE + group * 32 * W + lane * W + which;
        if (i < n) out[i] = W == 2 ? (which ? path1(in[i]) : path0(in[i])) : take_path(which, in[i]);
    }
}
__global__ void transform2(const float *in, float *out, unsigned n) { go<2>(in, out, n); }
__global__ void transform8(const float *in, float *out, unsigned n) { go<8>(in, out, n); }

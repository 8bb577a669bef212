// Honest: A table of function pointers, templates and a switch.
#include <gpulab.cuh>
#include "paths.cuh"
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)

typedef float (*fn)(float);
__device__ fn table[2] = { path0, path1 };
template <int W> __device__ float take(float x) { return take_path(W, x); }
template <int WAYS> __device__ void run(const float *in, float *out, unsigned n)
{ unsigned t = threadIdx.x, warp = t / 32, lane = t % 32, which = warp % WAYS, i = blockIdx.x * BLOCK_SIZE + (warp / WAYS) * 32 * WAYS + lane * WAYS + which; if (i >= n) return;
  if (WAYS == 2) { out[i] = table[which](in[i]); return; }
  float r; switch (which) { case 0: r = take<0>(in[i]); break; case 1: r = take<1>(in[i]); break; case 2: r = take<2>(in[i]); break; case 3: r = take<3>(in[i]); break; case 4: r = take<4>(in[i]); break; case 5: r = take<5>(in[i]); break; case 6: r = take<6>(in[i]); break; default: r = take<7>(in[i]); }
  out[i] = r; }
__global__ void transform2(const float *in, float *out, unsigned n) { run<2>(in, out, n); }
__global__ void transform8(const float *in, float *out, unsigned n) { run<8>(in, out, n); }

// Honest: Sklansky's scan with a block size that is no power of two.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 96)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)
GPULAB_TUNABLE(INCLUSIVE, 1)

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{ __shared__ float s[128]; unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
  s[t] = i < n ? in[i] : 0.f; if (t < 32) s[96 + t] = 0;
  __syncthreads();
  for (unsigned d = 1; d < 128; d <<= 1) { if (t & d) { s[t] += s[(t & ~(d - 1)) - 1]; } __syncthreads(); }
  if (i < n) out[i] = s[t]; if (t == BLOCK_SIZE - 1) block_sums[blockIdx.x] = s[t]; }

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{ unsigned first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD; if (blockIdx.x > 0) for (unsigned k = 0, i = first + threadIdx.x; k < ITEMS_PER_THREAD; ++k, i += BLOCK_SIZE) if (i < n) out[i] += offsets[blockIdx.x - 1]; }

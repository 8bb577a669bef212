// Honest: A barrier of its own for each pair of warps, counted, and lanes that drop what absent lanes give them.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
  __shared__ GPULAB_T tile[BLOCK_SIZE], of_pair[2];
  unsigned t = threadIdx.x, pair = t / 64, i = blockIdx.x * BLOCK_SIZE + t;
  tile[t] = i < n ? in[i] : GPULAB_IDENTITY;
  asm volatile("bar.sync %0, 64;" :: "r"(pair + 1) : "memory");
  if (t % 64 < 16) {
    GPULAB_T v = GPULAB_OP(GPULAB_OP(tile[t], tile[t + 16]), GPULAB_OP(tile[t + 32], tile[t + 48]));
    for (unsigned o = 8; o > 0; o /= 2) {
      GPULAB_T other = __shfl_down_sync(0xffff, v, o);
      v = GPULAB_OP(v, other);
    }
    if (t % 64 == 0)
      of_pair[pair] = v;
  }
  __syncthreads();
  if (t == 0)
    out[blockIdx.x] = GPULAB_OP(of_pair[0], of_pair[1]);
}

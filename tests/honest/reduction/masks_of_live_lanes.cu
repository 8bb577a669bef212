// Honest: Shuffles among the live lanes only, a function that is not inlined, a named barrier in assembly.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)

__device__ __forceinline__ unsigned laneid() { unsigned r; asm volatile("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }
__device__ __noinline__ GPULAB_T combine(GPULAB_T a, GPULAB_T b) { return GPULAB_OP(a, b); }
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
  __shared__ GPULAB_T s[8];
  unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
  unsigned mask = __ballot_sync(0xffffffff, i < n);
  if (i < n) {
    GPULAB_T v = in[i];
    unsigned cnt = __popc(mask);
    for (unsigned o = 16; o > 0; o >>= 1) { GPULAB_T w = __shfl_down_sync(mask, v, o); if (laneid() + o < cnt) v = combine(v, w); }
    if (laneid() == 0) s[threadIdx.x / 32] = v;
  } else if (laneid() == 0) s[threadIdx.x / 32] = GPULAB_IDENTITY;
  asm volatile("bar.sync 1, 256;" ::: "memory");
  if (threadIdx.x < 8) { GPULAB_T v = s[threadIdx.x]; for (int o = 4; o; o /= 2) { GPULAB_T w = __shfl_down_sync(0xff, v, o, 8); v = combine(v, w); } if (threadIdx.x == 0) out[blockIdx.x] = v; }
}

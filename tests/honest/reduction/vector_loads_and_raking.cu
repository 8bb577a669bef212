// Honest: Vector loads of a type found by <type_traits>, a switch that falls through for the rest, one warp that rakes.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

#include <type_traits>
typedef std::conditional<std::is_same<GPULAB_T, int>::value, int4, float4>::type V4;
union U { V4 v; GPULAB_T a[4]; };
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
  __shared__ __align__(16) GPULAB_T s[BLOCK_SIZE];
  unsigned i = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * 4u;
  GPULAB_T v;
  if (i + 4 <= n) { U u; u.v = reinterpret_cast<const V4*>(in)[i / 4]; v = GPULAB_OP(GPULAB_OP(u.a[0], u.a[1]), GPULAB_OP(u.a[2], u.a[3])); }
  else { v = GPULAB_IDENTITY; switch (n > i ? n - i : 0) { case 3: v = GPULAB_OP(v, in[i + 2]); case 2: v = GPULAB_OP(v, in[i + 1]); case 1: v = GPULAB_OP(v, in[i]); case 0: default:; } }
  s[threadIdx.x] = v;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  // raking: one warp
  #pragma unroll 1
  for (unsigned k = threadIdx.x + 32; k < BLOCK_SIZE; k += 32) v = GPULAB_OP(v, s[k]);
  s[threadIdx.x] = v; __syncwarp();
  for (int m = 16; m >= 1; m /= 2) { if (threadIdx.x < m) { GPULAB_T t = s[threadIdx.x + m]; s[threadIdx.x] = GPULAB_OP(s[threadIdx.x], t); } __syncwarp(); }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

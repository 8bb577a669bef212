// Honest: A decoupled look-back with loads that acquire and stores that release, in assembly.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 16)
GPULAB_TUNABLE(INCLUSIVE, 1)

GPULAB_TUNABLE(SINGLE_PASS, 1)
__device__ __forceinline__ unsigned long long ld_acq(const unsigned long long *p) { unsigned long long v; asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ void st_rel(unsigned long long *p, unsigned long long v) { asm volatile("st.release.gpu.global.u64 [%0], %1;" :: "l"(p), "l"(v) : "memory"); }
struct alignas(8) Desc { float value; unsigned flag; };
__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status, float *aggregates, float *prefixes, unsigned n)
{ __shared__ float s[BLOCK_SIZE]; __shared__ unsigned tile; __shared__ float before;
  if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
  __syncthreads();
  unsigned t = threadIdx.x, first = (tile * BLOCK_SIZE + t) * ITEMS_PER_THREAD;
  float v[ITEMS_PER_THREAD]; float run = 0;
  for (int k = 0; k < ITEMS_PER_THREAD; ++k) { run += first + k < n ? in[first + k] : 0; v[k] = run; }
  s[t] = run; __syncthreads();
  for (int d = 1; d < BLOCK_SIZE; d *= 2) { float x = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += x; __syncthreads(); }
  if (t == 0) { 
 union { Desc d; unsigned long long u; } w; w.d = Desc{s[BLOCK_SIZE - 1], 1}; st_rel(status + tile, w.u);
 float sum = 0; for (unsigned j = tile; j-- > 0;) { do w.u = ld_acq(status + j); while (!w.d.flag); sum += w.d.value; if (w.d.flag == 2) break; }
 w.d = Desc{sum + s[BLOCK_SIZE - 1], 2}; st_rel(status + tile, w.u); before = sum;  }
  __syncthreads();
  float b = before + (t ? s[t - 1] : 0);
  for (int k = 0; k < ITEMS_PER_THREAD; ++k) if (first + k < n) out[first + k] = b + v[k];
}

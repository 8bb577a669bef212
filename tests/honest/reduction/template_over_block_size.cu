// Honest: A template over the block size, chosen by a switch, with a volatile last warp that synchronises.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 2)

template <unsigned blockSize, typename T>
__device__ void warpReduce(volatile T *sdata, unsigned tid) {
  T v = sdata[tid];
  if (blockSize >= 64) { v = GPULAB_OP(v, sdata[tid + 32]); __syncwarp(); sdata[tid] = v; __syncwarp(); }
  if (blockSize >= 32) { v = GPULAB_OP(v, sdata[tid + 16]); __syncwarp(); sdata[tid] = v; __syncwarp(); }
  if (blockSize >= 16) { v = GPULAB_OP(v, sdata[tid + 8]); __syncwarp(); sdata[tid] = v; __syncwarp(); }
  if (blockSize >= 8) { v = GPULAB_OP(v, sdata[tid + 4]); __syncwarp(); sdata[tid] = v; __syncwarp(); }
  if (blockSize >= 4) { v = GPULAB_OP(v, sdata[tid + 2]); __syncwarp(); sdata[tid] = v; __syncwarp(); }
  if (blockSize >= 2) { v = GPULAB_OP(v, sdata[tid + 1]); __syncwarp(); sdata[tid] = v; }
}
template <unsigned blockSize, typename T>
__device__ void reduce6(const T *g_idata, T *g_odata, unsigned n) {
  __shared__ T sdata[blockSize < 64 ? 64 : blockSize];
  unsigned tid = threadIdx.x;
  unsigned i = blockIdx.x * (blockSize * 2) + tid;
  unsigned gridSize = blockSize * 2 * gridDim.x;
  T mine = GPULAB_IDENTITY;
  while (i < n) { mine = GPULAB_OP(mine, g_idata[i]); if (i + blockSize < n) mine = GPULAB_OP(mine, g_idata[i + blockSize]); i += gridSize; }
  sdata[tid] = mine;
  __syncthreads();
  if (blockSize >= 512) { if (tid < 256) { sdata[tid] = GPULAB_OP(sdata[tid], sdata[tid + 256]); } __syncthreads(); }
  if (blockSize >= 256) { if (tid < 128) { sdata[tid] = GPULAB_OP(sdata[tid], sdata[tid + 128]); } __syncthreads(); }
  if (blockSize >= 128) { if (tid < 64) { sdata[tid] = GPULAB_OP(sdata[tid], sdata[tid + 64]); } __syncthreads(); }
  if (tid < 32) warpReduce<blockSize, T>(sdata, tid);
  if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
  switch (blockDim.x) {
    case 512: reduce6<512, GPULAB_T>(in, out, n); break;
    case 256: reduce6<256, GPULAB_T>(in, out, n); break;
    case 128: reduce6<128, GPULAB_T>(in, out, n); break;
    case 64: reduce6<64, GPULAB_T>(in, out, n); break;
  }
}

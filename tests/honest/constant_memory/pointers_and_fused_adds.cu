// Honest: Pointers into constant memory, a struct with a member function, fused multiply-adds, tiles one thread wide.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 1)
GPULAB_TUNABLE(TILE_Y, 32)
__constant__ float2 vectors[64];

struct P { float x, y; __device__ float d2(float2 v) const { float dx = x - v.x, dy = y - v.y; return __fmaf_rn(dx, dx, dy * dy); } };
__global__ void field(float *out, int width, int height, int count)
{ P p{(float)(blockIdx.x * TILE_X + threadIdx.x), (float)(blockIdx.y * TILE_Y + threadIdx.y)}; float acc = 0; const float2 *e = vectors + count; for (const float2 *v = vectors; v != e; ++v) acc += p.d2(*v); if (p.x < width) if (p.y < height) out[int(p.y) * width + int(p.x)] = acc; }

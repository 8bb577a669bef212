// Honest: A plain tile, but the middle element stays in a register.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 16)
constexpr int R = 5;
__global__ void stencil(const int *in, int *out, int w, int h) {
    __shared__ int t[26][42]; int x0 = blockIdx.x * 32 - R, y0 = blockIdx.y * 16 - R, x = x0 + R + threadIdx.x, y = y0 + R + threadIdx.y; int own = x < w && y < h ? in[y * w + x] : 0;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 26 * 42; k += 512) { int u = x0 + k % 42, v = y0 + k / 42; t[k / 42][k % 42] = u >= 0 && u < w && v >= 0 && v < h ? in[v * w + u] : 0; }
    __syncthreads(); int s = own; for (int j = 0; j < 11; ++j) for (int i = 0; i < 11; ++i) if (i != R || j != R) s += t[threadIdx.y + j][threadIdx.x + i]; if (x < w && y < h) out[y * w + x] = s; }

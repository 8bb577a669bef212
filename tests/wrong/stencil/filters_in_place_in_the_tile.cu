// Wrong: a row's sum replaces an element that the neighbours still have to read.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 16)
GPULAB_TUNABLE(TILE_Y, 16)

constexpr int R = 5, W = TILE_X + 2 * R, H = TILE_Y + 2 * R;

__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int tile[H][W];
    int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    int x0 = blockIdx.x * TILE_X - R, y0 = blockIdx.y * TILE_Y - R;
    for (int r = threadIdx.y; r < H; r += TILE_Y)
        for (int c = threadIdx.x; c < W; c += TILE_X)
            tile[r][c] = x0 + c >= 0 && x0 + c < width && y0 + r >= 0 && y0 + r < height
                ? in[(y0 + r) * width + x0 + c] : 0;
    __syncthreads();
    int sum = 0;
    for (int u = 0; u <= 2 * R; ++u)
        sum += tile[threadIdx.y + R][threadIdx.x + u];
    tile[threadIdx.y + R][threadIdx.x + R] = sum;  // BUG: race
    __syncthreads();
    sum = 0;
    for (int v = 0; v <= 2 * R; ++v)
        sum += tile[threadIdx.y + v][threadIdx.x + R];
    if (x < width && y < height)
        out[y * width + x] = sum;
}

// Wrong: all values come through shuffles and registers; copies in shared memory are compared only.
#include <gpulab.cuh>
GPULAB_TUNABLE(TILE_X, 32)
GPULAB_TUNABLE(TILE_Y, 1)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)
// A warp has 32 columns and slides down; the 10 columns beside them are read as well.
__global__ void stencil(const int *in, int *out, int width, int height)
{
    __shared__ int shown[64];
    const int R = 5, lane = threadIdx.x, x0 = blockIdx.x * 32, y0 = blockIdx.y * ITEMS_PER_THREAD;
    auto at = [&](int y, int x) { return y >= 0 && y < height && x >= 0 && x < width ? in[y * width + x] : 0; };
    auto row = [&](int y) {
        int a = at(y, x0 + lane - R), b = lane < 2 * R ? at(y, x0 + 32 - R + lane) : 0, sum = 0;
        for (int k = 0; k <= 2 * R; ++k) {
            int s = lane + k;
            int u = __shfl_sync(0xffffffffu, a, s % 32), v = __shfl_sync(0xffffffffu, b, s % 32);
            sum += s < 32 ? u : v;
        }
        return sum;
    };
    bool same = true;
    int sum = 0, kept[2 * R + 1];
#pragma unroll
    for (int k = 0; k < 2 * R; ++k)
        sum += kept[k] = row(y0 - R + k);
    kept[2 * R] = 0;
#pragma unroll
    for (int k = 0; k < ITEMS_PER_THREAD; ++k) {
        int next = row(y0 + k + R);
        sum += next - kept[(k + 2 * R) % (2 * R + 1)];
        kept[(k + 2 * R) % (2 * R + 1)] = next;
        shown[lane] = next;
        __syncwarp();
        same &= shown[lane ^ 1] == __shfl_xor_sync(0xffffffffu, next, 1);
        __syncwarp();
        if (y0 + k < height && x0 + lane < width)
            out[(y0 + k) * width + x0 + lane] = same ? sum : 0;
    }
}

// Further kernels of the kinds that courses ask for, estimated before they were timed; see course_launches.py.
#include <cuda_fp16.h>
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)
#define AT_2D int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y
typedef unsigned char Byte;

__constant__ float taps[64];
__constant__ Byte pattern[16];

extern "C" {
// --- histograms -----------------------------------------------------------------------------------
__global__ void letters_global(const Byte *text, unsigned *bins, unsigned n) {
    for (unsigned i = THREAD; i < n; i += ALL) {
        int letter = text[i] - 'a';
        if (letter >= 0 && letter < 26) atomicAdd(&bins[letter / 4], 1);
    }
}
__global__ void letters_shared(const Byte *text, unsigned *bins, unsigned n) {
    __shared__ unsigned mine[7];
    if (threadIdx.x < 7) mine[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = THREAD; i < n; i += ALL) {
        int letter = text[i] - 'a';
        if (letter >= 0 && letter < 26) atomicAdd(&mine[letter / 4], 1);
    }
    __syncthreads();
    if (threadIdx.x < 7) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
__global__ void letters_aggregated(const Byte *text, unsigned *bins, unsigned n) {
    __shared__ unsigned mine[7];
    if (threadIdx.x < 7) mine[threadIdx.x] = 0;
    __syncthreads();
    unsigned run = 0;
    int before = -1;
    for (unsigned i = THREAD; i < n; i += ALL) {
        int letter = text[i] - 'a';
        if (letter < 0 || letter >= 26) continue;
        int bin = letter / 4;
        if (bin == before) run++;
        else {
            if (run > 0) atomicAdd(&mine[before], run);
            run = 1;
            before = bin;
        }
    }
    if (run > 0) atomicAdd(&mine[before], run);
    __syncthreads();
    if (threadIdx.x < 7) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
__global__ void gray_levels(const uchar4 *pixels, unsigned *bins, unsigned n) {
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = THREAD; i < n; i += ALL) {
        uchar4 p = pixels[i];
        int gray = (299 * p.x + 587 * p.y + 114 * p.z) / 1000;
        atomicAdd(&mine[gray], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

// --- reductions -----------------------------------------------------------------------------------
__global__ void sum_each(const float *in, float *out, unsigned n) {
    unsigned i = THREAD;
    if (i < n) atomicAdd(out, in[i]);
}
__global__ void sum_warps(const float *in, float *out, unsigned n) {
    unsigned i = THREAD;
    float value = i < n ? in[i] : 0.0f;
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, value);
}
__global__ void sum_blocks(const float *in, float *out, unsigned n) {
    __shared__ float of_warps[32];
    float value = 0.0f;
    for (unsigned i = THREAD; i < n; i += ALL) value += in[i];
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
        if (threadIdx.x == 0) atomicAdd(out, value);
    }
}
__global__ void sum_coarse(const float *in, float *out) {
    __shared__ float part[512];
    unsigned i = blockIdx.x * blockDim.x * 8 + threadIdx.x;
    float sum = in[i];
    for (int k = 1; k < 8; k++) sum += in[i + k * blockDim.x];
    part[threadIdx.x] = sum;
    for (unsigned half = blockDim.x / 2; half >= 1; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
__global__ void largest_float(const float *in, int *out, unsigned n) {
    __shared__ float part[256];
    float most = -1e30f;
    for (unsigned i = THREAD; i < n; i += ALL) most = fmaxf(most, in[i]);
    part[threadIdx.x] = most;
    __syncthreads();
    for (unsigned half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        int old = *out;
        while (__int_as_float(old) < part[0]) {
            int seen = atomicCAS(out, old, __float_as_int(part[0]));
            if (seen == old) break;
            old = seen;
        }
    }
}
__global__ void count_close(const float *in, unsigned *counts, float value, unsigned n) {
    unsigned i = THREAD;
    int found = __syncthreads_count(i < n && fabsf(in[i] - value) < 0.25f);
    if (threadIdx.x == 0) counts[blockIdx.x] = found;
}
__global__ void mean_last_block(const float *in, double *partial, double *out, unsigned *done, unsigned n) {
    __shared__ double part[256];
    __shared__ bool last;
    double sum = 0;
    for (unsigned i = THREAD; i < n; i += ALL) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = part[0];
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++) sum += __ldcg(&partial[i]);
        *out = sum / n;
    }
}
__global__ void max_last_block(const int *in, int *partial, int *out, unsigned *done, unsigned n) {
    __shared__ int part[8];
    __shared__ bool last;
    int most = 0;
    for (unsigned i = THREAD; i < n; i += ALL) most = max(most, in[i]);
    most = __reduce_max_sync(0xffffffff, most);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++) most = max(most, part[w]);
        partial[blockIdx.x] = most;
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        most = 0;
        for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) most = max(most, __ldcg(&partial[i]));
        most = __reduce_max_sync(0xffffffff, most);
        if (threadIdx.x % 32 == 0) atomicMax(out, most);
        if (threadIdx.x == 0) *done = 0;
    }
}

// --- scans of several launches --------------------------------------------------------------------
__global__ void scan_naive_step(const int *in, int *out, unsigned step, unsigned n) {
    unsigned i = THREAD;
    if (i < n) out[i] = i >= step ? in[i] + in[i - step] : in[i];
}
__global__ void scan_kogge_stone(const int *in, int *out, int *sums, unsigned n) {
    __shared__ int part[1024];
    unsigned i = THREAD;
    part[threadIdx.x] = i < n ? in[i] : 0;
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        int sum = part[threadIdx.x];
        if (threadIdx.x >= step) sum += part[threadIdx.x - step];
        __syncthreads();
        part[threadIdx.x] = sum;
    }
    if (i < n) out[i] = part[threadIdx.x];
    if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = part[threadIdx.x];
}
__global__ void scan_brent_kung(const int *in, int *out, int *sums, unsigned n) {
    __shared__ int part[1024];
    unsigned i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] : 0;
    part[threadIdx.x + blockDim.x] = i + blockDim.x < n ? in[i + blockDim.x] : 0;
    for (unsigned step = 1; step <= blockDim.x; step *= 2) {
        __syncthreads();
        unsigned at = (threadIdx.x + 1) * 2 * step - 1;
        if (at < 2 * blockDim.x) part[at] += part[at - step];
    }
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        unsigned at = (threadIdx.x + 1) * 2 * step - 1;
        if (at + step < 2 * blockDim.x) part[at + step] += part[at];
    }
    __syncthreads();
    if (i < n) out[i] = part[threadIdx.x];
    if (i + blockDim.x < n) out[i + blockDim.x] = part[threadIdx.x + blockDim.x];
    if (threadIdx.x == 0) sums[blockIdx.x] = part[2 * blockDim.x - 1];
}
__global__ void scan_coarse(const int *in, int *out, int *sums) {
    __shared__ int part[256 * 8];
    __shared__ int ends[256];
    unsigned t = threadIdx.x, base = blockIdx.x * 2048;
    for (int k = 0; k < 8; k++) part[t + k * 256] = in[base + t + k * 256];
    __syncthreads();
    for (int k = 1; k < 8; k++) part[8 * t + k] += part[8 * t + k - 1];
    ends[t] = part[8 * t + 7];
    for (unsigned step = 1; step < 256; step *= 2) {
        __syncthreads();
        int sum = t >= step ? ends[t - step] : 0;
        __syncthreads();
        ends[t] += sum;
    }
    __syncthreads();
    if (t > 0) for (int k = 0; k < 8; k++) part[8 * t + k] += ends[t - 1];
    __syncthreads();
    for (int k = 0; k < 8; k++) out[base + t + k * 256] = part[t + k * 256];
    if (t == 255) sums[blockIdx.x] = part[2047];
}
__global__ void scan_add_sums(int *out, const int *sums, unsigned n) {
    unsigned i = THREAD;
    if (blockIdx.x > 0 && i < n) out[i] += sums[blockIdx.x - 1];
}
__global__ void segments_of_warps(const int *in, const Byte *heads, int *out, unsigned n) {
    unsigned i = THREAD, lane = threadIdx.x % 32;
    int value = in[i];
    unsigned starts = __ballot_sync(0xffffffff, heads[i]) & (0xffffffffu >> (31 - lane));
    int first = starts ? 31 - __clz(starts) : 0;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, value, d);
        if ((int)lane - d >= first) value += other;
    }
    out[i] = value;
}

// --- stencils and images --------------------------------------------------------------------------
__global__ void heat_3d(const float *in, float *out, int n) {
    AT_2D;
    int z = blockIdx.z * blockDim.z + threadIdx.z, i = (z * n + y) * n + x;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    out[i] = 0.5f * in[i] + 0.08f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n]);
}
__global__ void heat_3d_shared(const float *in, float *out, int n) {
    __shared__ float cube[8][8][8];
    int x = blockIdx.x * 6 + threadIdx.x - 1, y = blockIdx.y * 6 + threadIdx.y - 1, z = blockIdx.z * 6 + threadIdx.z - 1;
    int tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z;
    bool inside = x >= 0 && y >= 0 && z >= 0 && x < n && y < n && z < n;
    cube[tz][ty][tx] = inside ? in[(z * n + y) * n + x] : 0.0f;
    __syncthreads();
    if (inside && tx > 0 && ty > 0 && tz > 0 && tx < 7 && ty < 7 && tz < 7)
        out[(z * n + y) * n + x] = 0.5f * cube[tz][ty][tx] + 0.08f * (cube[tz][ty][tx - 1] + cube[tz][ty][tx + 1] +
            cube[tz][ty - 1][tx] + cube[tz][ty + 1][tx] + cube[tz - 1][ty][tx] + cube[tz + 1][ty][tx]);
}
__global__ void heat_3d_columns(const float *in, float *out, int n) {
    AT_2D;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int plane = n * n, i = y * n + x;
    float below = in[i], here = in[i + plane];
    for (int z = 1; z < n - 1; z++) {
        i += plane;
        float above = in[i + plane];
        out[i] = 0.5f * here + 0.08f * (below + above + in[i - 1] + in[i + 1] + in[i - n] + in[i + n]);
        below = here;
        here = above;
    }
}
__global__ void life(const Byte *in, Byte *out, int n) {
    AT_2D;
    int alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx != 0 || dy != 0) alive += in[(y + dy + n) % n * n + (x + dx + n) % n];
    out[y * n + x] = alive == 3 || (alive == 2 && in[y * n + x]);
}
__global__ void life_shared(const int *in, int *out, int n) {
    __shared__ int cells[18][34];
    AT_2D;
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    for (int r = threadIdx.y; r < 18; r += 16)
        for (int c = threadIdx.x; c < 34; c += 32) {
            int gx = (int)(blockIdx.x * 32) + c - 1, gy = (int)(blockIdx.y * 16) + r - 1;
            cells[r][c] = gx >= 0 && gy >= 0 && gx < n && gy < n ? in[gy * n + gx] : 0;
        }
    __syncthreads();
    int alive = cells[ty - 1][tx - 1] + cells[ty - 1][tx] + cells[ty - 1][tx + 1] + cells[ty][tx - 1] + cells[ty][tx + 1] +
                cells[ty + 1][tx - 1] + cells[ty + 1][tx] + cells[ty + 1][tx + 1];
    if (alive == 3) out[y * n + x] = 1;
    else if (alive == 2) out[y * n + x] = cells[ty][tx];
    else out[y * n + x] = 0;
}
__global__ void blur_box(const Byte *in, Byte *out, int width, int height, int radius) {
    AT_2D;
    if (x >= width || y >= height) return;
    int sum = 0, pixels = 0;
    for (int row = y - radius; row <= y + radius; row++)
        for (int column = x - radius; column <= x + radius; column++)
            if (row >= 0 && row < height && column >= 0 && column < width) {
                sum += in[row * width + column];
                pixels++;
            }
    out[y * width + x] = sum / pixels;
}
__global__ void sobel(const Byte *in, Byte *out, int width, int height) {
    AT_2D;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
    const Byte *p = in + y * width + x;
    float gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
    float gy = p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
    float length = sqrtf(gx * gx + gy * gy);
    out[y * width + x] = length > 255.0f ? 255 : (Byte)length;
}
__global__ void to_gray(const Byte *rgb, Byte *gray, unsigned n) {
    unsigned i = THREAD;
    if (i < n) gray[i] = 0.21f * rgb[3 * i] + 0.71f * rgb[3 * i + 1] + 0.07f * rgb[3 * i + 2];
}
__global__ void convolve_line(const float *in, float *out, int n, int width) {
    int i = THREAD;
    float sum = 0.0f;
    for (int k = 0; k < width; k++) {
        int at = i - width / 2 + k;
        if (at >= 0 && at < n) sum += in[at] * taps[k];
    }
    out[i] = sum;
}
__global__ void convolve_line_tiled(const float *in, float *out, int n, int width) {
    __shared__ float tile[256 + 32];
    int i = THREAD, halo = width / 2;
    int left = i - halo, right = left + (int)blockDim.x;
    tile[threadIdx.x] = left >= 0 ? in[left] : 0.0f;
    if ((int)threadIdx.x < 2 * halo) tile[threadIdx.x + blockDim.x] = right < n ? in[right] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < width; k++) sum += tile[threadIdx.x + k] * taps[k];
    out[i] = sum;
}
__global__ void convolve_plane_tiled(const float *in, float *out, int width, int height) {
    __shared__ float tile[20][20];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
    int from_x = x - 2, from_y = y - 2;
    if (from_x >= 0 && from_x < width && from_y >= 0 && from_y < height) tile[ty][tx] = in[from_y * width + from_x];
    else tile[ty][tx] = 0.0f;
    __syncthreads();
    if (tx < 16 && ty < 16 && x < width && y < height) {
        float sum = 0.0f;
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 5; j++) sum += taps[5 * i + j] * tile[ty + i][tx + j];
        out[y * width + x] = sum;
    }
}

// --- matrices -------------------------------------------------------------------------------------
#define PRODUCT(name, T, SUM) \
    __global__ void name(const T *a, const T *b, T *c, int n) { \
        __shared__ T left[16][16], right[16][16]; \
        int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx; \
        SUM sum = 0; \
        for (int p = 0; p < (n + 15) / 16; p++) { \
            left[ty][tx] = row < n && p * 16 + tx < n ? a[row * n + p * 16 + tx] : T(0); \
            right[ty][tx] = column < n && p * 16 + ty < n ? b[(p * 16 + ty) * n + column] : T(0); \
            __syncthreads(); \
            for (int k = 0; k < 16; k++) sum += SUM(left[ty][k]) * SUM(right[k][tx]); \
            __syncthreads(); \
        } \
        if (row < n && column < n) c[row * n + column] = T(sum); \
    }
PRODUCT(product_double, double, double)
PRODUCT(product_half, __half, float)
PRODUCT(product_int, int, int)

__global__ void product_coarse(const float *a, const float *b, float *c, int n) {
    __shared__ float left[32][32], right[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, first = blockIdx.x * 128 + tx;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int p = 0; p < n / 32; p++) {
        left[ty][tx] = a[row * n + p * 32 + tx];
        for (int q = 0; q < 4; q++) {
            int column = first + q * 32;
            right[ty][tx] = b[(p * 32 + ty) * n + column];
            __syncthreads();
            for (int k = 0; k < 32; k++) sums[q] += left[ty][k] * right[k][tx];
            __syncthreads();
        }
    }
    for (int q = 0; q < 4; q++) c[row * n + first + q * 32] = sums[q];
}
__global__ void product_registers(const float *a, const float *b, float *c, int n) {
    __shared__ float left[64][16], right[16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int p = 0; p < n; p += 16) {
        for (int k = t; k < 64 * 16; k += 256) {
            left[k / 16][k % 16] = a[(row + k / 16) * n + p + k % 16];
            right[k / 64][k % 64] = b[(p + k / 64) * n + column + k % 64];
        }
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            float of_a[4], of_b[4];
            for (int i = 0; i < 4; i++) of_a[i] = left[ty * 4 + i][k];
            for (int j = 0; j < 4; j++) of_b[j] = right[k][tx * 4 + j];
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sums[i][j] += of_a[i] * of_b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(row + ty * 4 + i) * n + column + tx * 4 + j] = sums[i][j];
}
__global__ void rows_times_vector(const float *a, const float *v, float *out, int n) {
    int row = THREAD;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * v[k];
    out[row] = sum;
}
__global__ void columns_times_vector(const float *a, const float *v, float *out, int n) {
    int column = THREAD;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[k * n + column] * v[k];
    out[column] = sum;
}
__global__ void warps_times_vector(const float *a, const float *v, float *out, int n) {
    int row = THREAD / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int k = lane; k < n; k += 32) sum += a[row * n + k] * v[k];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (lane == 0) out[row] = sum;
}

// --- transposes -----------------------------------------------------------------------------------
#define TRANSPOSE(name, T, width, COLUMN) \
    __global__ void name(const T *in, T *out, int n) { \
        __shared__ T tile[32][width]; \
        int bx = COLUMN, by = blockIdx.y, x = bx * 32 + threadIdx.x, y = by * 32 + threadIdx.y; \
        for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x]; \
        __syncthreads(); \
        x = by * 32 + threadIdx.x; \
        y = bx * 32 + threadIdx.y; \
        for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j]; \
    }
TRANSPOSE(transpose_rows, float, 32, blockIdx.x)
TRANSPOSE(transpose_rows_padded, float, 33, blockIdx.x)
TRANSPOSE(transpose_diagonal, float, 33, ((blockIdx.x + blockIdx.y) % gridDim.x))
TRANSPOSE(transpose_double, double, 33, blockIdx.x)
TRANSPOSE(transpose_bytes, Byte, 36, blockIdx.x)

// --- rows: softmax and normalization --------------------------------------------------------------
__global__ void softmax_threads(const float *in, float *out, int columns) {
    const float *row = in + THREAD * columns;
    float most = -1e30f, sum = 0.0f;
    for (int k = 0; k < columns; k++) most = fmaxf(most, row[k]);
    for (int k = 0; k < columns; k++) sum += expf(row[k] - most);
    for (int k = 0; k < columns; k++) out[THREAD * columns + k] = expf(row[k] - most) / sum;
}
__global__ void softmax_warps(const float *in, float *out, int columns) {
    int row = THREAD / 32, lane = threadIdx.x % 32;
    float most = -1e30f, sum = 0.0f;
    for (int k = lane; k < columns; k += 32) most = fmaxf(most, in[row * columns + k]);
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, d));
    for (int k = lane; k < columns; k += 32) sum += __expf(in[row * columns + k] - most);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int k = lane; k < columns; k += 32) out[row * columns + k] = __expf(in[row * columns + k] - most) / sum;
}
#define OVER_BLOCK(value, COMBINE) \
    part[threadIdx.x] = value; \
    __syncthreads(); \
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) { \
        if (threadIdx.x < half) part[threadIdx.x] = COMBINE(part[threadIdx.x], part[threadIdx.x + half]); \
        __syncthreads(); \
    } \
    value = part[0]; \
    __syncthreads();
#define PLUS(a, b) ((a) + (b))
__global__ void softmax_blocks(const float *in, float *out, int columns) {
    __shared__ float part[256];
    const float *row = in + blockIdx.x * columns;
    float most = -1e30f, sum = 0.0f;
    for (int k = threadIdx.x; k < columns; k += blockDim.x) most = fmaxf(most, row[k]);
    OVER_BLOCK(most, fmaxf)
    for (int k = threadIdx.x; k < columns; k += blockDim.x) sum += expf(row[k] - most);
    OVER_BLOCK(sum, PLUS)
    for (int k = threadIdx.x; k < columns; k += blockDim.x) out[blockIdx.x * columns + k] = expf(row[k] - most) / sum;
}
__global__ void layernorm_blocks(const float *in, float *out, const float *gain, int columns) {
    __shared__ float part[256];
    const float *row = in + blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int k = threadIdx.x; k < columns; k += blockDim.x) sum += row[k];
    OVER_BLOCK(sum, PLUS)
    float mean = sum / columns;
    for (int k = threadIdx.x; k < columns; k += blockDim.x) squares += (row[k] - mean) * (row[k] - mean);
    OVER_BLOCK(squares, PLUS)
    float scale = rsqrtf(squares / columns + 1e-5f);
    for (int k = threadIdx.x; k < columns; k += blockDim.x)
        out[blockIdx.x * columns + k] = (row[k] - mean) * scale * gain[k];
}

// --- sorting and searching ------------------------------------------------------------------------
__global__ void bitonic_shared(const int *in, int *out) {
    __shared__ int keys[512];
    unsigned t = threadIdx.x, i = THREAD;
    keys[t] = in[i];
    __syncthreads();
    for (unsigned k = 2; k <= 512; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            unsigned other = t ^ j;
            if (other > t) {
                int a = keys[t], b = keys[other];
                if ((a > b) == ((t & k) == 0)) {
                    keys[t] = b;
                    keys[other] = a;
                }
            }
            __syncthreads();
        }
    out[i] = keys[t];
}
__global__ void bitonic_step(int *keys, unsigned j, unsigned k) {
    unsigned i = THREAD, other = i ^ j;
    if (other > i) {
        int a = keys[i], b = keys[other];
        if ((i & k) == 0 ? a > b : a < b) {
            keys[i] = b;
            keys[other] = a;
        }
    }
}
__global__ void odd_even_shared(const int *in, int *out) {
    __shared__ int keys[256];
    unsigned t = threadIdx.x;
    keys[t] = in[blockIdx.x * 256 + t];
    keys[t + 128] = in[blockIdx.x * 256 + t + 128];
    for (int phase = 0; phase < 64; phase++) {
        __syncthreads();
        unsigned at = 2 * t + phase % 2;
        if (at + 1 < 256 && keys[at] > keys[at + 1]) {
            int kept = keys[at];
            keys[at] = keys[at + 1];
            keys[at + 1] = kept;
        }
    }
    __syncthreads();
    out[blockIdx.x * 256 + t] = keys[t];
    out[blockIdx.x * 256 + t + 128] = keys[t + 128];
}
__global__ void lower_bounds(const int *sorted, const int *wanted, int *out, int n) {
    int key = wanted[THREAD], low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < key) low = middle + 1;
        else high = middle;
    }
    out[THREAD] = low;
}
__global__ void merge_by_rank(const int *a, const int *b, int *out, int n) {
    int i = THREAD, key = a[i], low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (b[middle] < key) low = middle + 1;
        else high = middle;
    }
    out[i + low] = key;
}

// --- compaction -----------------------------------------------------------------------------------
__global__ void compact_scatter(const int *in, const int *places, int *out, unsigned n) {
    unsigned i = THREAD;
    if (i + 1 < n && places[i] != places[i + 1]) out[places[i]] = in[i];
}
__global__ void compact_blocks(const int *in, int *out, unsigned *count, unsigned n) {
    __shared__ unsigned taken, base;
    unsigned i = THREAD, place = 0;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    bool keep = i < n && in[i] % 3 == 0;
    if (keep) place = atomicAdd(&taken, 1);
    __syncthreads();
    if (threadIdx.x == 0) base = atomicAdd(count, taken);
    __syncthreads();
    if (keep) out[base + place] = in[i];
}
__global__ void split_by_bit(const unsigned *in, unsigned *out, unsigned bit) {
    __shared__ unsigned ones[8];
    unsigned t = threadIdx.x, lane = t % 32, value = in[THREAD], set = value >> bit & 1;
    unsigned votes = __ballot_sync(0xffffffff, set), before = __popc(votes & ((1u << lane) - 1));
    if (lane == 0) ones[t / 32] = __popc(votes);
    __syncthreads();
    unsigned total = 0;
    for (unsigned w = 0; w < 8; w++) {
        if (w < t / 32) before += ones[w];
        total += ones[w];
    }
    out[blockIdx.x * 256 + (set ? 256 - total + before : t - before)] = value;
}

// --- text -----------------------------------------------------------------------------------------
__global__ void find_pattern(const Byte *text, unsigned *found, unsigned n, unsigned length) {
    unsigned i = THREAD;
    if (i + length > n) return;
    unsigned k = 0;
    while (k < length && text[i + k] == pattern[k]) k++;
    if (k == length) atomicAdd(found, 1);
}
__global__ void to_upper(const Byte *in, Byte *out, unsigned n) {
    unsigned i = THREAD;
    if (i < n) out[i] = in[i] >= 'a' && in[i] <= 'z' ? in[i] - 32 : in[i];
}
__global__ void count_words(const Byte *text, unsigned *words, unsigned n) {
    __shared__ unsigned mine;
    if (threadIdx.x == 0) mine = 0;
    __syncthreads();
    unsigned i = THREAD;
    if (i > 0 && i < n && text[i] != ' ' && text[i - 1] == ' ') atomicAdd(&mine, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(words, mine);
}

// --- simulation -----------------------------------------------------------------------------------
__global__ void bodies_global(const float4 *bodies, float4 *forces, int n) {
    float4 me = bodies[THREAD];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int k = 0; k < n; k++) {
        float dx = bodies[k].x - me.x, dy = bodies[k].y - me.y, dz = bodies[k].z - me.z;
        float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), weight = bodies[k].w * inverse * inverse * inverse;
        ax += dx * weight;
        ay += dy * weight;
        az += dz * weight;
    }
    forces[THREAD] = make_float4(ax, ay, az, 0.0f);
}
__global__ void bodies_tiled(const float4 *bodies, float4 *forces, int n) {
    __shared__ float4 tile[128];
    float4 me = bodies[THREAD];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int base = 0; base < n; base += 128) {
        tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 128; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float distance = sqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float weight = tile[k].w / (distance * distance * distance);
            ax += dx * weight;
            ay += dy * weight;
            az += dz * weight;
        }
        __syncthreads();
    }
    forces[THREAD] = make_float4(ax, ay, az, 0.0f);
}
__global__ void mandelbrot(unsigned *out, int width, int height, int rounds) {
    AT_2D;
    float cx = -2.0f + 3.0f * x / width, cy = -1.5f + 3.0f * y / height, zx = 0.0f, zy = 0.0f;
    int k = 0;
    while (k < rounds && zx * zx + zy * zy < 4.0f) {
        float next = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = next;
        k++;
    }
    out[y * width + x] = k;
}
__global__ void julia_double(unsigned *out, int width, int height, int rounds) {
    AT_2D;
    double zx = 3.0 * x / width - 1.5, zy = 2.0 * y / height - 1.0;
    int k;
    for (k = 0; k < rounds; k++) {
        double next = zx * zx - zy * zy - 0.8;
        zy = 2.0 * zx * zy + 0.156;
        zx = next;
        if (zx * zx + zy * zy > 4.0) break;
    }
    out[y * width + x] = k;
}
__global__ void pi_by_chance(unsigned long long *inside, int rounds) {
    unsigned state = THREAD * 747796405u + 1u, hits = 0;
    for (int k = 0; k < rounds; k++) {
        state ^= state << 13; state ^= state >> 17; state ^= state << 5;
        float x = state / 4294967296.0f;
        state ^= state << 13; state ^= state >> 17; state ^= state << 5;
        float y = state / 4294967296.0f;
        if (x * x + y * y <= 1.0f) hits++;
    }
    atomicAdd(inside, hits);
}

// --- sparse matrices and graphs -------------------------------------------------------------------
__global__ void sparse_rows(const int *starts, const int *columns, const float *values, const float *v, float *out) {
    int row = THREAD;
    float sum = 0.0f;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * v[columns[k]];
    out[row] = sum;
}
__global__ void sparse_warps(const int *starts, const int *columns, const float *values, const float *v, float *out) {
    int row = THREAD / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int k = starts[row] + lane; k < starts[row + 1]; k += 32) sum += values[k] * v[columns[k]];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (lane == 0) out[row] = sum;
}
__global__ void sparse_ell(const int *columns, const float *values, const float *v, float *out, int rows, int width) {
    int row = THREAD;
    float sum = 0.0f;
    for (int k = 0; k < width; k++) sum += values[k * rows + row] * v[columns[k * rows + row]];
    out[row] = sum;
}
__global__ void sparse_coordinates(const int *rows, const int *columns, const float *values, const float *v, float *out) {
    unsigned k = THREAD;
    atomicAdd(&out[rows[k]], values[k] * v[columns[k]]);
}
__global__ void breadth_first(const int *starts, const int *next, int *levels, int level, int *changed) {
    int node = THREAD;
    if (levels[node] != level) return;
    for (int k = starts[node]; k < starts[node + 1]; k++)
        if (levels[next[k]] == -1) {
            levels[next[k]] = level + 1;
            *changed = 1;
        }
}

// --- patterns of access ---------------------------------------------------------------------------
__global__ void gather(const float *in, const unsigned *from, float *out) { out[THREAD] = in[from[THREAD]]; }
__global__ void scatter(const float *in, const unsigned *to, float *out) { out[to[THREAD]] = in[THREAD]; }
__global__ void every(const float *in, float *out, unsigned stride) { out[THREAD] = in[THREAD * stride]; }
__global__ void shifted(const float *in, float *out, unsigned offset) { out[THREAD] = in[THREAD + offset]; }
struct Particle { float x, y, z, mass, vx, vy, vz, age; };
__global__ void move_structs(Particle *all, float dt) {
    Particle &p = all[THREAD];
    p.x += p.vx * dt;
    p.y += p.vy * dt;
    p.z += p.vz * dt;
}
__global__ void move_arrays(float *x, float *y, float *z, const float *vx, const float *vy, const float *vz, float dt) {
    unsigned i = THREAD;
    x[i] += vx[i] * dt;
    y[i] += vy[i] * dt;
    z[i] += vz[i] * dt;
}
__global__ void reverse_blocks(const int *in, int *out, unsigned n) {
    extern __shared__ int part[];
    part[blockDim.x - 1 - threadIdx.x] = in[THREAD];
    __syncthreads();
    out[n - (blockIdx.x + 1) * blockDim.x + threadIdx.x] = part[threadIdx.x];
}
__global__ void columns_of_shared(const float *in, float *out, int pad) {
    extern __shared__ float tile[];
    int width = 32 + pad, t = threadIdx.x;
    for (int r = t / 32; r < 32; r += blockDim.x / 32) tile[r * width + t % 32] = in[blockIdx.x * 1024 + r * 32 + t % 32];
    __syncthreads();
    float sum = 0.0f;
    if (t < 32) for (int c = 0; c < 32; c++) sum += tile[t * width + c];
    else if (t < 64) for (int r = 0; r < 32; r++) sum += tile[r * width + t - 32];
    out[THREAD] = sum;
}
__global__ void sum_chunks(const float *in, float *out, unsigned each) {
    float sum = 0.0f;
    for (unsigned k = 0; k < each; k++) sum += in[THREAD * each + k];
    out[THREAD] = sum;
}

// --- types ----------------------------------------------------------------------------------------
__global__ void axpy_double(double a, const double *x, double *y) { y[THREAD] = a * x[THREAD] + y[THREAD]; }
__global__ void waves_double(const double *x, double *y) { y[THREAD] = sin(x[THREAD]) * exp(-x[THREAD]); }
__global__ void waves_float(const float *x, float *y) { y[THREAD] = sinf(x[THREAD]) * expf(-x[THREAD]); }
__global__ void distances(const float2 *a, const float2 *b, float *out) {
    float dx = a[THREAD].x - b[THREAD].x, dy = a[THREAD].y - b[THREAD].y;
    out[THREAD] = sqrtf(dx * dx + dy * dy) / (1.0f + fabsf(dx));
}

// --- integers -------------------------------------------------------------------------------------
__global__ void count_primes(unsigned *count, unsigned first) {
    unsigned candidate = first + THREAD;
    for (unsigned d = 2; d * d <= candidate; d++)
        if (candidate % d == 0) return;
    atomicAdd(count, 1);
}
__global__ void divisors_gcd(const unsigned *a, const unsigned *b, unsigned *out) {
    unsigned x = a[THREAD] + 1, y = b[THREAD] + 1;
    while (y != 0) {
        unsigned rest = x % y;
        x = y;
        y = rest;
    }
    out[THREAD] = x;
}
__global__ void digit_sums(const unsigned *in, unsigned *out) {
    unsigned value = in[THREAD], sum = 0;
    while (value > 0) {
        sum += value % 10;
        value /= 10;
    }
    out[THREAD] = sum;
}
__global__ void powers_modulo(const unsigned *in, unsigned *out, unsigned power, unsigned modulus) {
    unsigned long long base = in[THREAD] % modulus, result = 1;
    for (unsigned e = power; e > 0; e /= 2) {
        if (e % 2 == 1) result = result * base % modulus;
        base = base * base % modulus;
    }
    out[THREAD] = result;
}
__global__ void hash_strings(const Byte *text, unsigned *out, int length) {
    unsigned hash = 2166136261u;
    for (int k = 0; k < length; k++) hash = (hash ^ text[THREAD * length + k]) * 16777619u;
    out[THREAD] = hash;
}
__global__ void count_bits(const unsigned *in, unsigned *out) {
    unsigned value = in[THREAD], bits = 0;
    while (value) {
        value &= value - 1;
        bits++;
    }
    out[THREAD] = bits + __popc(in[THREAD]);
}

// --- divergent branches ---------------------------------------------------------------------------
__global__ void halves_of_warps(const float *in, float *out, int group) {
    float x = in[THREAD];
    if (threadIdx.x / group % 2 == 0)
        for (int k = 0; k < 40; k++) x = x * 1.01f + 0.5f;
    else
        for (int k = 0; k < 40; k++) x = sqrtf(x + 1.5f);
    out[THREAD] = x;
}
__global__ void triangle_loops(const float *in, float *out) {
    float x = in[THREAD];
    for (unsigned k = 0; k < threadIdx.x % 32 * 4; k++) x = x * 0.99f + 0.01f;
    out[THREAD] = x;
}
__global__ void calculator(const Byte *codes, const float *a, const float *b, float *out) {
    float x = a[THREAD], y = b[THREAD], result = 0.0f;
    switch (codes[THREAD] % 7) {
    case 0: result = x + y; break;
    case 1: result = x - y; break;
    case 2: result = x * y; break;
    case 3: result = x / (y + 1.0f); break;
    case 4: result = powf(x + 0.1f, y); break;
    case 5: result = fmodf(x, y + 0.1f); break;
    default: result = sqrtf(x * x + y * y); break;
    }
    out[THREAD] = result;
}
}

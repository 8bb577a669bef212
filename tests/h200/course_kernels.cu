// Kernels as course pages and sheets of exercises ask for them, in other styles than student_kernels.cu; see course_launches.py.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

struct Particle {
    float x, y, z, mass;
    float vx, vy, vz, charge;
};

__constant__ float mask[32];
__constant__ float3 spheres[64];
__constant__ float centroids[16][4];

__device__ inline int global_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value += __shfl_down_sync(~0u, value, offset);
    return value;
}

// --- reductions -----------------------------------------------------------------------------------
template <int BLOCK>
__device__ void sum_of_block(const float4 *in, float *out, int n) {
    __shared__ float sums[BLOCK / 32];
    float mine = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n / 4; i += BLOCK * gridDim.x) {
        float4 v = in[i];
        mine += (v.x + v.y) + (v.z + v.w);
    }
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < BLOCK / 32 ? sums[threadIdx.x] : 0.f;
        mine = warp_sum(mine);
        if (threadIdx.x == 0) atomicAdd(out, mine);
    }
}

extern "C" {
__global__ void sum_vectors_128(const float4 *in, float *out, int n) { sum_of_block<128>(in, out, n); }
__global__ void sum_vectors_512(const float4 *in, float *out, int n) { sum_of_block<512>(in, out, n); }

__global__ void sum_groups(const float *in, float *out, int n) {
    __shared__ float scratch[1024];
    cg::thread_block block = cg::this_thread_block();
    int rank = block.thread_rank(), i = blockIdx.x * block.size() * 2 + rank;
    float value = i < n ? in[i] : 0;
    if (i + block.size() < n) value += in[i + block.size()];
    for (int active = block.size() / 2; active > 0; active /= 2) {
        scratch[rank] = value;
        block.sync();
        if (rank < active) value += scratch[rank + active];
        block.sync();
    }
    if (rank == 0) out[blockIdx.x] = value;
}

__global__ void sum_thread_zero(const float *in, float *out, int n) {
    __shared__ float cache[256];
    int i = global_index();
    cache[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int k = 0; k < 256; k++) total += cache[k];
        out[blockIdx.x] = total;
    }
}

__global__ void sum_in_place(float *data, int n) {
    float *mine = data + blockIdx.x * blockDim.x;
    for (int stride = blockDim.x / 2; stride > 0; stride >>= 1) {
        if (threadIdx.x < stride) mine[threadIdx.x] += mine[threadIdx.x + stride];
        __syncthreads();
    }
}

__global__ void largest_place(const float *in, float *best, int *place, int n) {
    __shared__ float values[256];
    __shared__ int places[256];
    float v = -1e30f;
    int at = -1;
    for (int i = global_index(); i < n; i += gridDim.x * blockDim.x)
        if (in[i] > v) { v = in[i]; at = i; }
    values[threadIdx.x] = v;
    places[threadIdx.x] = at;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half && values[threadIdx.x + half] > values[threadIdx.x]) {
            values[threadIdx.x] = values[threadIdx.x + half];
            places[threadIdx.x] = places[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        best[blockIdx.x] = values[0];
        place[blockIdx.x] = places[0];
    }
}

__device__ unsigned arrived;
__global__ void norm_last_block(const float *in, float *partial, float *out, int n) {
    __shared__ float sums[8];
    __shared__ unsigned ticket;
    float mine = 0;
    for (int i = global_index(); i < n; i += gridDim.x * blockDim.x) mine += in[i] * in[i];
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int w = 0; w < 8; w++) total += sums[w];
        partial[blockIdx.x] = total;
        __threadfence();
        ticket = atomicInc(&arrived, gridDim.x - 1);
    }
    __syncthreads();
    if (ticket == gridDim.x - 1) {
        mine = 0;
        for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) mine += __ldcg(&partial[i]);
        mine = warp_sum(mine);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            float total = 0;
            for (int w = 0; w < 8; w++) total += sums[w];
            *out = sqrtf(total);
        }
    }
}

// --- scans ----------------------------------------------------------------------------------------
__global__ void kogge_stone(const float *in, float *out, int n) {
    __shared__ float line[1024];
    int i = global_index();
    line[threadIdx.x] = i < n ? in[i] : 0.f;
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        __syncthreads();
        float left = 0;
        if (threadIdx.x >= stride) left = line[threadIdx.x - stride];
        __syncthreads();
        if (threadIdx.x >= stride) line[threadIdx.x] += left;
    }
    if (i < n) out[i] = line[threadIdx.x];
}

__global__ void brent_kung(const float *in, float *out, int n) {
    __shared__ float line[2048];
    int i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) line[threadIdx.x] = in[i];
    if (i + blockDim.x < n) line[threadIdx.x + blockDim.x] = in[i + blockDim.x];
    for (unsigned stride = 1; stride <= blockDim.x; stride *= 2) {
        __syncthreads();
        unsigned at = (threadIdx.x + 1) * 2 * stride - 1;
        if (at < 2 * blockDim.x) line[at] += line[at - stride];
    }
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        __syncthreads();
        unsigned at = (threadIdx.x + 1) * stride * 2 - 1;
        if (at + stride < 2 * blockDim.x) line[at + stride] += line[at];
    }
    __syncthreads();
    if (i < n) out[i] = line[threadIdx.x];
    if (i + blockDim.x < n) out[i + blockDim.x] = line[threadIdx.x + blockDim.x];
}

__global__ void scan_of_items(const int4 *in, int4 *out) {
    __shared__ int warps[32];
    int i = global_index(), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 v = in[i];
    v.y += v.x; v.z += v.y; v.w += v.z;
    int sum = v.w;
    for (int d = 1; d < 32; d <<= 1) {
        int other = __shfl_up_sync(~0u, sum, d);
        sum += lane >= d ? other : 0;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int before = sum - v.w;
    for (int w = 0; w < warp; w++) before += warps[w];
    v.x += before; v.y += before; v.z += before; v.w += before;
    out[i] = v;
}

__global__ void add_offsets(float *out, const float *sums, int n) {
    int i = global_index();
    if (blockIdx.x > 0 && i < n) out[i] += sums[blockIdx.x - 1];
}

__global__ void moving_sum(const float *in, float *out, int n, int width) {
    int first = global_index() * 16;
    if (first + 16 + width > n) return;
    float sum = 0;
    for (int k = 0; k < width; k++) sum += in[first + k];
    for (int k = 0; k < 16; k++) {
        out[first + k] = sum;
        sum += in[first + k + width] - in[first + k];
    }
}

// --- divergence -----------------------------------------------------------------------------------
__global__ void mandelbrot(unsigned char *image, int width, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    float cr = -2.f + 3.f * px / width, ci = -1.5f + 3.f * py / width, zr = 0, zi = 0;
    int k = 0;
    while (k < limit && zr * zr + zi * zi < 4.f) {
        float next = zr * zr - zi * zi + cr;
        zi = 2.f * zr * zi + ci;
        zr = next;
        k++;
    }
    image[py * width + px] = k;
}

__global__ void collatz(unsigned *steps, unsigned n) {
    unsigned i = global_index(), count = 0;
    if (i >= n) return;
    unsigned long long value = i + 1;
    while (value != 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        count++;
    }
    steps[i] = count;
}

__global__ void calculator(const int *codes, const float *a, const float *b, float *out, int n) {
    int i = global_index();
    if (i >= n) return;
    float x = a[i], y = b[i], r;
    switch (codes[i] & 3) {
    case 0: r = x + y; break;
    case 1: r = x * y - x; break;
    case 2: r = fminf(x, y) * 2.f; break;
    default: r = x - y * y;
    }
    out[i] = r;
}

__global__ void machine(const int *codes, float *out, int n, int steps) {
    int i = global_index();
    float r = i * 0.001f;
    for (int k = 0; k < steps; k++) {
        switch ((codes[i] + k) % 6) {
        case 0: r = r * 0.5f + 1.f; break;
        case 1: r = r - floorf(r); break;
        case 2: r = fabsf(r - 3.f); break;
        case 3: r = r * r * 0.1f; break;
        case 4: r = __fdividef(1.f, r + 1.5f); break;
        case 5: r += 0.25f * k; break;
        }
    }
    out[i] = r;
}

__global__ void quadrants(const float *in, float *out, int n, int by_warp) {
    int i = global_index();
    int which = (by_warp ? threadIdx.x / 32 : threadIdx.x) % 4;
    float x = in[i];
    if (which == 0) {
        for (int k = 0; k < 30; k++) x = x * 1.01f + 0.01f;
    } else if (which == 1) {
        for (int k = 0; k < 30; k++) x = x * 0.99f - 0.02f;
    } else if (which == 2) {
        for (int k = 0; k < 30; k++) x = x * x + 0.03f;
    } else {
        for (int k = 0; k < 30; k++) x = 1.f - x * 0.5f;
    }
    out[i] = x;
}

__global__ void triangle_loop(const float *in, float *out, int n) {
    int i = global_index();
    float sum = 0;
    for (int k = 0; k <= (int)(threadIdx.x % 64); k++) sum += in[i] * k;
    out[i] = sum;
}

__global__ void early_exit(const float *in, float *out, int n, float below) {
    int i = global_index();
    if (i >= n || in[i] >= below) return;
    float x = in[i];
    for (int k = 1; k <= 40; k++) x = sqrtf(x * k + 1.f);
    out[i] = x;
}

// --- constant memory ------------------------------------------------------------------------------
__global__ void filter_line(const float *__restrict__ in, float *__restrict__ out, int n, int taps) {
    int i = global_index();
    float sum = 0;
    for (int k = 0; k < taps; k++) {
        int at = i + k - taps / 2;
        if (at >= 0 && at < n) sum += in[at] * mask[k];
    }
    if (i < n) out[i] = sum;
}

__global__ void nearest_centroid(const float4 *points, int *nearest, int n, int count) {
    int i = global_index();
    if (i >= n) return;
    float4 p = points[i];
    float least = 1e30f;
    int at = 0;
    for (int c = 0; c < count; c++) {
        float a = p.x - centroids[c][0], b = p.y - centroids[c][1], d = p.z - centroids[c][2], e = p.w - centroids[c][3];
        float distance = a * a + b * b + d * d + e * e;
        if (distance < least) { least = distance; at = c; }
    }
    nearest[i] = at;
}

__global__ void ray_hits(int *hits, int width, int count) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float ox = (float)x / width, oy = (float)y / width, best = -1e9f;
    int hit = -1;
    for (int s = 0; s < count; s++) {
        float dx = ox - spheres[s].x, dy = oy - spheres[s].y, r = spheres[s].z;
        if (dx * dx + dy * dy < r * r) {
            float dz = sqrtf(r * r - dx * dx - dy * dy);
            if (dz > best) { best = dz; hit = s; }
        }
    }
    hits[y * width + x] = hit;
}

__global__ void decode(const unsigned char *in, float *out, int n) {
    int i = global_index();
    if (i < n) out[i] = mask[in[i] % 32];
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void letters(const char *text, unsigned *counts, int n) {
    __shared__ unsigned mine[26];
    if (threadIdx.x < 26) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = global_index(); i < n; i += blockDim.x * gridDim.x) {
        int place = (text[i] | 32) - 'a';
        if (place >= 0 && place < 26) atomicAdd(&mine[place], 1);
    }
    __syncthreads();
    if (threadIdx.x < 26 && mine[threadIdx.x]) atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
}

__global__ void letters_global(const char *text, unsigned *counts, int n) {
    int i = global_index();
    if (i < n) {
        int place = (text[i] | 32) - 'a';
        if (place >= 0 && place < 26) atomicAdd(&counts[place], 1);
    }
}

__global__ void brightness(const uchar4 *pixels, unsigned *bins, int n) {
    __shared__ unsigned local_bins[256];
    local_bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = global_index(); i < n; i += blockDim.x * gridDim.x) {
        uchar4 p = pixels[i];
        atomicAdd(&local_bins[(p.x * 77 + p.y * 150 + p.z * 29) >> 8], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local_bins[threadIdx.x]);
}

__global__ void histogram_private(const unsigned char *in, unsigned *bins, int n) {
    unsigned mine[8] = {0};
    for (int i = global_index(); i < n; i += blockDim.x * gridDim.x) mine[in[i] % 8]++;
    for (int b = 0; b < 8; b++) atomicAdd(&bins[b], mine[b]);
}

__global__ void histogram_runs(const unsigned char *in, unsigned *bins, int n) {
    __shared__ unsigned mine[64];
    if (threadIdx.x < 64) mine[threadIdx.x] = 0;
    __syncthreads();
    int last = -1, run = 0;
    for (int i = global_index(); i < n; i += blockDim.x * gridDim.x) {
        int bin = in[i] / 4;
        if (bin == last) run++;
        else {
            if (run) atomicAdd(&mine[last], run);
            run = 1;
            last = bin;
        }
    }
    if (run) atomicAdd(&mine[last], run);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

__global__ void scatter_add(const int *where, const float *what, float *out, int n) {
    int i = global_index();
    if (i < n) atomicAdd(&out[where[i]], what[i]);
}

// --- stencils -------------------------------------------------------------------------------------
__global__ void life(const unsigned char *now, unsigned char *next, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) alive += now[((y + dy + width) % width) * width + (x + dx + width) % width];
    next[y * width + x] = alive == 3 || (alive == 2 && now[y * width + x]);
}

__global__ void heat_tile(const float *in, float *out, int width) {
    __shared__ float tile[10][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 340; k += 256) {
        int cx = min(max((int)(blockIdx.x * 32 + k % 34) - 1, 0), width - 1);
        int cy = min(max((int)(blockIdx.y * 8 + k / 34) - 1, 0), width - 1);
        tile[k / 34][k % 34] = in[cy * width + cx];
    }
    __syncthreads();
    int c = threadIdx.x + 1, r = threadIdx.y + 1;
    out[y * width + x] = tile[r][c] + 0.1f * (tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1] - 4 * tile[r][c]);
}

__global__ void heat_steps(const float *in, float *out, int steps) {
    __shared__ float now[512], next[512];
    int t = threadIdx.x, i = blockIdx.x * 512 + t;
    now[t] = in[i];
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        float left = t > 0 ? now[t - 1] : now[t], right = t < 511 ? now[t + 1] : now[t];
        next[t] = now[t] + 0.25f * (left - 2 * now[t] + right);
        __syncthreads();
        now[t] = next[t];
        __syncthreads();
    }
    out[i] = now[t];
}

__global__ void laplace_columns(const float *in, float *out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int plane = nx * ny, at = y * nx + x + plane;
    float below = in[at - plane], here = in[at];
    for (int z = 1; z < nz - 1; z++) {
        float above = in[at + plane];
        out[at] = below + above + in[at - 1] + in[at + 1] + in[at - nx] + in[at + nx] - 6 * here;
        below = here;
        here = above;
        at += plane;
    }
}

__global__ void pool_3(const float *in, float *out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, small = width / 2;
    if (x >= small || y >= small) return;
    float best = in[2 * y * width + 2 * x];
    for (int dy = 0; dy < 2; dy++)
        for (int dx = 0; dx < 2; dx++) best = fmaxf(best, in[(2 * y + dy) * width + 2 * x + dx]);
    out[y * small + x] = best;
}

__global__ void median_window(const float *in, float *out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= width - 1 || y >= width - 1) return;
    float v[9];
    for (int k = 0; k < 9; k++) v[k] = in[(y + k / 3 - 1) * width + x + k % 3 - 1];
    for (int i = 0; i < 5; i++) {
        int least = i;
        for (int j = i + 1; j < 9; j++)
            if (v[j] < v[least]) least = j;
        float t = v[i]; v[i] = v[least]; v[least] = t;
    }
    out[y * width + x] = v[4];
}

// --- transposes, matrices -------------------------------------------------------------------------
__global__ void transpose_swizzled(const float *in, float *out, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x ^ (threadIdx.y + j)] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.x ^ (threadIdx.y + j)];
}

__global__ void transpose_16(const float *in, float *out, int n) {
    __shared__ float tile[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    tile[ty][tx] = in[(blockIdx.y * 16 + ty) * n + blockIdx.x * 16 + tx];
    __syncthreads();
    out[(blockIdx.x * 16 + ty) * n + blockIdx.y * 16 + tx] = tile[tx][ty];
}

__global__ void transpose_rows(const float *in, float *out, int n) {
    int row = global_index();
    if (row < n)
        for (int c = 0; c < n; c++) out[c * n + row] = in[row * n + c];
}

__global__ void matrix_add_coarse(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < n)
        for (int row = 0; row < n; row++) c[row * n + column] = a[row * n + column] + b[row * n + column];
}

__global__ void matrix_add_row(const float *a, const float *b, float *c, int n) {
    int row = global_index();
    if (row < n)
        for (int k = 0; k < n; k++) c[row * n + k] = a[row * n + k] + b[row * n + k];
}

__global__ void matrix_vector(const float *a, const float *x, float *y, int n) {
    int row = global_index();
    if (row >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * x[k];
    y[row] = sum;
}

__global__ void matrix_vector_warp(const float *a, const float *x, float *y, int n) {
    int row = global_index() / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = lane; k < n; k += 32) sum += a[row * n + k] * x[k];
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

__global__ void matrix_vector_columns(const float *a, const float *x, float *y, int n) {
    int row = global_index();
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[k * n + row] * x[k];
    y[row] = sum;
}

__global__ void product_wide(const float *a, const float *b, float *c, int n) {
    __shared__ float left[16][16], right[16][64];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 64 + x;
    float sums[4] = {0, 0, 0, 0};
    for (int m = 0; m < n; m += 16) {
        left[y][x] = a[row * n + m + x];
        for (int j = 0; j < 4; j++) right[y][x + 16 * j] = b[(m + y) * n + column + 16 * j];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 4; j++) sums[j] += left[y][k] * right[k][x + 16 * j];
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) c[row * n + column + 16 * j] = sums[j];
}

__global__ void row_softmax(const float *in, float *out, int columns) {
    __shared__ float part[256];
    const float *row = in + blockIdx.x * columns;
    float most = -1e30f, sum = 0;
    for (int c = threadIdx.x; c < columns; c += 256) most = fmaxf(most, row[c]);
    part[threadIdx.x] = most;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += 256) sum += expf(row[c] - most);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < columns; c += 256) out[blockIdx.x * columns + c] = expf(row[c] - most) / part[0];
}

// --- structures, sorting, sparse matrices, random numbers -------------------------------------------
__global__ void move_structures(Particle *particles, int n, float dt) {
    int i = global_index();
    if (i >= n) return;
    particles[i].x += dt * particles[i].vx;
    particles[i].y += dt * particles[i].vy;
    particles[i].z += dt * particles[i].vz;
}

__global__ void move_arrays(float *x, float *y, float *z, const float *vx, const float *vy, const float *vz, int n, float dt) {
    int i = global_index();
    if (i >= n) return;
    x[i] += dt * vx[i];
    y[i] += dt * vy[i];
    z[i] += dt * vz[i];
}

__global__ void forces(const float4 *bodies, float3 *out, int n) {
    __shared__ float4 tile[128];
    int i = global_index();
    float4 me = bodies[i];
    float3 sum = {0, 0, 0};
    for (int first = 0; first < n; first += 128) {
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 128; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-6f), s = tile[k].w * inverse * inverse * inverse;
            sum.x += s * dx;
            sum.y += s * dy;
            sum.z += s * dz;
        }
        __syncthreads();
    }
    out[i] = sum;
}

__global__ void bitonic_block(int *keys) {
    __shared__ int tile[512];
    int t = threadIdx.x, first = blockIdx.x * 512;
    tile[t] = keys[first + t];
    tile[t + 256] = keys[first + t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int at = 2 * t - (t & (stride - 1));
            bool up = (at & size) == 0;
            int a = tile[at], b = tile[at + stride];
            if ((a > b) == up) {
                tile[at] = b;
                tile[at + stride] = a;
            }
        }
    __syncthreads();
    keys[first + t] = tile[t];
    keys[first + t + 256] = tile[t + 256];
}

__global__ void odd_even_step(int *keys, int n, int odd) {
    int i = 2 * global_index() + odd;
    if (i + 1 < n && keys[i] > keys[i + 1]) {
        int kept = keys[i];
        keys[i] = keys[i + 1];
        keys[i + 1] = kept;
    }
}

__global__ void sort_own(float *data, int n) {
    float own[12];
    int i = global_index();
    for (int k = 0; k < 12; k++) own[k] = data[k * n + i];
    for (int a = 1; a < 12; a++) {
        float key = own[a];
        int b = a;
        for (; b > 0 && own[b - 1] > key; b--) own[b] = own[b - 1];
        own[b] = key;
    }
    for (int k = 0; k < 12; k++) data[k * n + i] = own[k];
}

__global__ void sparse_rows(const int *starts, const int *columns, const float *values, const float *x, float *y, int rows) {
    int row = global_index();
    if (row >= rows) return;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}

__global__ void search_sorted(const int *sorted, int count, const int *wanted, int *found, int n) {
    int i = global_index();
    if (i >= n) return;
    int low = 0, high = count, key = wanted[i];
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < key) low = middle + 1;
        else high = middle;
    }
    found[i] = low;
}

__global__ void circle_points(unsigned *inside, int rounds) {
    unsigned state = global_index() * 747796405u + 1, mine = 0;
    for (int k = 0; k < rounds; k++) {
        state = state * 1664525u + 1013904223u;
        float x = (state >> 8) * (1.f / (1 << 24));
        state = state * 1664525u + 1013904223u;
        float y = (state >> 8) * (1.f / (1 << 24));
        mine += x * x + y * y <= 1.f;
    }
    atomicAdd(inside, mine);
}

__global__ void gray(const unsigned char *rgb, unsigned char *out, int n) {
    int i = global_index();
    if (i < n) out[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}

__global__ void options(const float *price, float *call, float *put, int n) {
    int i = global_index();
    if (i >= n) return;
    float s = price[i] * 50 + 10, k = 30.f, t = 1.5f, r = 0.02f, v = 0.3f, root = sqrtf(t);
    float d1 = (logf(s / k) + (r + 0.5f * v * v) * t) / (v * root), d2 = d1 - v * root;
    float n1 = normcdff(d1), n2 = normcdff(d2), discount = expf(-r * t);
    call[i] = s * n1 - k * discount * n2;
    put[i] = k * discount * (1.f - n2) - s * (1.f - n1);
}

__global__ void reverse_shared(const float *in, float *out) {
    __shared__ float tile[256];
    tile[255 - threadIdx.x] = in[global_index()];
    __syncthreads();
    out[(gridDim.x - 1 - blockIdx.x) * 256 + threadIdx.x] = tile[threadIdx.x];
}
}

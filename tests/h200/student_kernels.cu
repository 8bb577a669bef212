// Kernels of the kinds that courses ask for, written without a look at the cost model; see student_launches.py.
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)

__constant__ float table[1024];
__constant__ float weights[25];

extern "C" {
// --- atomics on few addresses ---------------------------------------------------------------------
__global__ void count_odd(const unsigned *x, unsigned *count, unsigned n) {
    unsigned i = THREAD;
    if (i < n && x[i] % 2 == 1) atomicAdd(count, 1);
}

__global__ void filter_each(const unsigned *x, unsigned *out, unsigned *count, unsigned n) {
    unsigned i = THREAD;
    if (i < n && x[i] % 4 == 0) out[atomicAdd(count, 1)] = x[i];
}

__global__ void filter_warps(const unsigned *x, unsigned *out, unsigned *count, unsigned n) {
    unsigned i = THREAD, lane = threadIdx.x % 32;
    bool keep = i < n && x[i] % 4 == 0;
    unsigned votes = __ballot_sync(0xffffffff, keep), base = 0;
    if (lane == 0 && votes) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(0xffffffff, base, 0);
    if (keep) out[base + __popc(votes & ((1u << lane) - 1))] = x[i];
}

__global__ void largest(const int *x, int *out, unsigned n) {
    unsigned i = THREAD;
    if (i < n) atomicMax(out, x[i]);
}

__global__ void sums_by_key(const unsigned *keys, const float *x, float *sums, unsigned n, unsigned groups) {
    for (unsigned i = THREAD; i < n; i += ALL) atomicAdd(&sums[keys[i] % groups], x[i]);
}

__global__ void dot_product(const double *a, const double *b, double *out, unsigned n) {
    __shared__ double partial[256];
    double sum = 0;
    for (unsigned i = THREAD; i < n; i += ALL) sum += a[i] * b[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, partial[0]);
}

// --- histograms in shared memory ------------------------------------------------------------------
#define HISTOGRAM(items) \
    __global__ void histogram_##items(const unsigned *x, unsigned *bins, unsigned n, unsigned count) { \
        __shared__ unsigned mine[256]; \
        for (unsigned b = threadIdx.x; b < count; b += blockDim.x) mine[b] = 0; \
        __syncthreads(); \
        unsigned first = blockIdx.x * blockDim.x * items + threadIdx.x; \
        for (unsigned k = 0; k < items; k++) { \
            unsigned i = first + k * blockDim.x; \
            if (i < n) atomicAdd(&mine[x[i] % count], 1); \
        } \
        __syncthreads(); \
        for (unsigned b = threadIdx.x; b < count; b += blockDim.x) atomicAdd(&bins[b], mine[b]); \
    }
HISTOGRAM(1)
HISTOGRAM(4)
HISTOGRAM(16)
HISTOGRAM(32)

__global__ void histogram_of_warps(const unsigned *x, unsigned *bins, unsigned n) {
    __shared__ unsigned copies[8][256];
    for (unsigned b = threadIdx.x; b < 8 * 256; b += blockDim.x) copies[b / 256][b % 256] = 0;
    __syncthreads();
    for (unsigned i = THREAD; i < n; i += ALL) atomicAdd(&copies[threadIdx.x / 32][x[i] & 255], 1);
    __syncthreads();
    unsigned total = 0;
    for (unsigned w = 0; w < 8; w++) total += copies[w][threadIdx.x];
    atomicAdd(&bins[threadIdx.x], total);
}

// --- paths ----------------------------------------------------------------------------------------
__device__ float path(unsigned which, float x) {
    switch (which) {
    case 0: for (int k = 0; k < 20; k++) x = x * 0.9f + 0.1f; return x;
    case 1: for (int k = 0; k < 20; k++) x = x * x - 0.5f; return x;
    case 2: return sqrtf(x) + 1.0f / (x + 2.0f);
    case 3: return expf(-x) * x;
    case 4: for (int k = 0; k < 20; k++) x = fabsf(x - 0.3f) * 1.1f; return x;
    case 5: return __sinf(x) + __cosf(x);
    case 6: return logf(x + 1.0f) * 3.0f;
    default: for (int k = 0; k < 20; k++) x = fmaxf(x * 0.5f, 1.0f - x); return x;
    }
}

__global__ void paths_of_lanes(const float *x, float *out, unsigned n, unsigned paths) {
    unsigned i = THREAD;
    if (i < n) out[i] = path(i % paths, x[i]);
}

__global__ void paths_of_warps(const float *x, float *out, unsigned n, unsigned paths) {
    unsigned i = THREAD;
    if (i < n) out[i] = path(i / 32 % paths, x[i]);
}

__global__ void paths_of_data(const unsigned *kinds, const float *x, float *out, unsigned n, unsigned paths) {
    unsigned i = THREAD;
    if (i < n) out[i] = path(kinds[i] % paths, x[i]);
}

__global__ void even_or_odd(const float *x, float *out, unsigned n) {
    unsigned i = THREAD;
    float value = i < n ? x[i] : 0.0f;
    if (threadIdx.x % 2 == 0) {
        for (int k = 0; k < 50; k++) value = value * 1.0001f + 0.5f;
    } else {
        for (int k = 0; k < 50; k++) value = value / 1.0002f - 0.5f;
    }
    if (i < n) out[i] = value;
}

// --- constant memory ------------------------------------------------------------------------------
__global__ void polynomial(const float *x, float *out, unsigned n, int degree) {
    unsigned i = THREAD;
    if (i >= n) return;
    float y = 0.0f;
    for (int k = degree; k >= 0; k--) y = y * x[i] + table[k];
    out[i] = y;
}

__global__ void table_of_lanes(const float *x, float *out, unsigned n, int rounds) {
    unsigned i = THREAD;
    if (i >= n) return;
    float y = x[i];
    for (int k = 0; k < rounds; k++) y += table[(threadIdx.x + k) % 64];
    out[i] = y;
}

__global__ void table_of_data(const unsigned *x, float *out, unsigned n, unsigned size) {
    unsigned i = THREAD;
    if (i < n) out[i] = table[x[i] % size];
}

__global__ void blur_constant(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 2 || y < 2 || x >= width - 2 || y >= height - 2) return;
    float sum = 0.0f;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) sum += weights[(dy + 2) * 5 + dx + 2] * in[(y + dy) * width + x + dx];
    out[y * width + x] = sum;
}

// --- scans ----------------------------------------------------------------------------------------
#define BLELLOCH(name, AT) \
    __global__ void name(const float *in, float *out, int size) { \
        extern __shared__ float tree[]; \
        int t = threadIdx.x, step = 1, base = blockIdx.x * size; \
        tree[AT(2 * t)] = in[base + 2 * t]; \
        tree[AT(2 * t + 1)] = in[base + 2 * t + 1]; \
        for (int d = size >> 1; d > 0; d >>= 1) { \
            __syncthreads(); \
            if (t < d) { \
                int left = step * (2 * t + 1) - 1, right = step * (2 * t + 2) - 1; \
                tree[AT(right)] += tree[AT(left)]; \
            } \
            step *= 2; \
        } \
        if (t == 0) tree[AT(size - 1)] = 0; \
        for (int d = 1; d < size; d *= 2) { \
            step >>= 1; \
            __syncthreads(); \
            if (t < d) { \
                int left = step * (2 * t + 1) - 1, right = step * (2 * t + 2) - 1; \
                float kept = tree[AT(left)]; \
                tree[AT(left)] = tree[AT(right)]; \
                tree[AT(right)] += kept; \
            } \
        } \
        __syncthreads(); \
        out[base + 2 * t] = tree[AT(2 * t)]; \
        out[base + 2 * t + 1] = tree[AT(2 * t + 1)]; \
    }
#define PLAIN(i) (i)
#define PADDED(i) ((i) + (i) / 32)
BLELLOCH(blelloch, PLAIN)
BLELLOCH(blelloch_padded, PADDED)

__global__ void hillis_steele(const float *in, float *out, int n) {
    extern __shared__ float both[];
    int t = threadIdx.x, size = blockDim.x, i = THREAD, from = 0, to = size;
    both[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int offset = 1; offset < size; offset *= 2) {
        both[to + t] = t >= offset ? both[from + t] + both[from + t - offset] : both[from + t];
        __syncthreads();
        int old = from;
        from = to;
        to = old;
    }
    if (i < n) out[i] = both[from + t];
}

__global__ void scan_by_shuffles(const float *in, float *out, int n) {
    __shared__ float sums[32];
    int i = THREAD, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float value = i < n ? in[i] : 0.0f;
    for (int d = 1; d < 32; d *= 2) {
        float before = __shfl_up_sync(0xffffffff, value, d);
        if (lane >= d) value += before;
    }
    if (lane == 31) sums[warp] = value;
    __syncthreads();
    if (warp == 0) {
        float sum = lane < blockDim.x / 32 ? sums[lane] : 0.0f;
        for (int d = 1; d < 32; d *= 2) {
            float before = __shfl_up_sync(0xffffffff, sum, d);
            if (lane >= d) sum += before;
        }
        sums[lane] = sum;
    }
    __syncthreads();
    if (i < n) out[i] = value + (warp > 0 ? sums[warp - 1] : 0.0f);
}

// --- tree reductions ------------------------------------------------------------------------------
__global__ void tree_modulo(const float *in, float *out) {
    __shared__ float part[512];
    unsigned t = threadIdx.x;
    part[t] = in[THREAD];
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0) part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void tree_strided(const float *in, float *out) {
    __shared__ float part[512];
    unsigned t = threadIdx.x;
    part[t] = in[THREAD];
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        unsigned at = 2 * step * t;
        if (at < blockDim.x) part[at] += part[at + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void tree_sequential(const float *in, float *out) {
    __shared__ float part[512];
    unsigned t = threadIdx.x;
    part[t] = in[THREAD];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

#define SUM_WITH_FENCE(name, FENCE) \
    __global__ void name(const float *in, float *partial, float *out, unsigned *done, unsigned n) { \
        __shared__ float part[256]; \
        __shared__ bool last; \
        unsigned t = threadIdx.x; \
        float sum = 0.0f; \
        for (unsigned i = THREAD; i < n; i += ALL) sum += in[i]; \
        part[t] = sum; \
        __syncthreads(); \
        for (unsigned half = 128; half > 0; half /= 2) { \
            if (t < half) part[t] += part[t + half]; \
            __syncthreads(); \
        } \
        if (t == 0) { \
            partial[blockIdx.x] = part[0]; \
            FENCE; \
            last = atomicAdd(done, 1) == gridDim.x - 1; \
        } \
        __syncthreads(); \
        if (last) { \
            sum = 0.0f; \
            for (unsigned i = t; i < gridDim.x; i += blockDim.x) sum += ((volatile float *)partial)[i]; \
            part[t] = sum; \
            __syncthreads(); \
            for (unsigned half = 128; half > 0; half /= 2) { \
                if (t < half) part[t] += part[t + half]; \
                __syncthreads(); \
            } \
            if (t == 0) *out = part[0]; \
        } \
    }
SUM_WITH_FENCE(sum_last_block, __threadfence())
SUM_WITH_FENCE(sum_last_block_system, __threadfence_system())

__global__ void publish(const float *in, float *out, unsigned *flags, unsigned n) {
    unsigned i = THREAD;
    if (i < n) out[i] = 2.0f * in[i];
    __threadfence();
    if (threadIdx.x == 0) atomicExch(&flags[blockIdx.x], 1);
}

__global__ void publish_system(const float *in, float *out, unsigned *flags, unsigned n) {
    unsigned i = THREAD;
    if (i < n) out[i] = 2.0f * in[i];
    __threadfence_system();
    if (threadIdx.x == 0) atomicExch(&flags[blockIdx.x], 1);
}

// --- bank conflicts: factors of 2 to 32 of the thread's index -------------------------------------
__global__ void bank_stores(float *out, unsigned stride, int rounds) {
    __shared__ float tile[4096];
    for (int k = 0; k < rounds; k++) {
        tile[(threadIdx.x * stride + k) % 4096] = k;
        __syncthreads();
    }
    out[THREAD] = tile[threadIdx.x];
}

__global__ void bank_loads(float *out, unsigned stride, int rounds) {
    __shared__ float tile[4096];
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) tile[i] = i;
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < rounds; k++) sum += tile[(threadIdx.x * stride + k) % 4096];
    out[THREAD] = sum;
}

__global__ void bank_updates(float *out, unsigned stride, int rounds) {
    __shared__ float tile[4096];
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) tile[i] = i;
    __syncthreads();
    for (int k = 0; k < rounds; k++) tile[threadIdx.x * stride % 4096] += 1.0f + tile[(threadIdx.x + k) % 4096] * 0.0f;
    __syncthreads();
    out[THREAD] = tile[threadIdx.x];
}

// --- matrices -------------------------------------------------------------------------------------
__global__ void matrix_sum_rows(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) c[row * n + column] = a[row * n + column] + b[row * n + column];
}

__global__ void matrix_sum_columns(const float *a, const float *b, float *c, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) c[row * n + column] = a[row * n + column] + b[row * n + column];
}

__global__ void product_plain(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || column >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

#define PRODUCT_TILED(size) \
    __global__ void product_tiled_##size(const float *a, const float *b, float *c, int n) { \
        __shared__ float left[size][size], right[size][size]; \
        int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * size + x, row = blockIdx.y * size + y; \
        float sum = 0.0f; \
        for (int m = 0; m < n / size; m++) { \
            left[y][x] = a[row * n + m * size + x]; \
            right[y][x] = b[(m * size + y) * n + column]; \
            __syncthreads(); \
            for (int k = 0; k < size; k++) sum += left[y][k] * right[k][x]; \
            __syncthreads(); \
        } \
        c[row * n + column] = sum; \
    }
PRODUCT_TILED(16)
PRODUCT_TILED(32)

#define TRANSPOSE_TILE(name, width) \
    __global__ void name(const float *in, float *out, int n) { \
        __shared__ float tile[32][width]; \
        int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y; \
        tile[threadIdx.y][threadIdx.x] = in[y * n + x]; \
        __syncthreads(); \
        x = blockIdx.y * 32 + threadIdx.x; \
        y = blockIdx.x * 32 + threadIdx.y; \
        out[y * n + x] = tile[threadIdx.x][threadIdx.y]; \
    }
TRANSPOSE_TILE(transpose_conflicts, 32)
TRANSPOSE_TILE(transpose_without_conflicts, 33)

__global__ void transpose_store_conflicts(const float *in, float *out, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.x][threadIdx.y + j] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.y + j][threadIdx.x];
}

__global__ void transpose_direct(const float *in, float *out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) out[x * n + y] = in[y * n + x];
}

// --- stencils -------------------------------------------------------------------------------------
__global__ void stencil_line_global(const float *in, float *out, int n) {
    int i = THREAD;
    float sum = 0.0f;
    for (int d = -4; d <= 4; d++)
        if (i + d >= 0 && i + d < n) sum += in[i + d];
    if (i < n) out[i] = sum / 9.0f;
}

__global__ void stencil_line_shared(const float *in, float *out, int n) {
    __shared__ float line[256 + 8];
    int i = THREAD, t = threadIdx.x + 4;
    line[t] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < 4) {
        line[t - 4] = i >= 4 ? in[i - 4] : 0.0f;
        line[t + blockDim.x] = i + blockDim.x < n ? in[i + blockDim.x] : 0.0f;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int d = -4; d <= 4; d++) sum += line[t + d];
    if (i < n) out[i] = sum / 9.0f;
}

__global__ void stencil_plane_global(const float *in, float *out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= n - 1 || y >= n - 1) return;
    int i = y * n + x;
    out[i] = 0.2f * (in[i] + in[i - 1] + in[i + 1] + in[i - n] + in[i + n]);
}

__global__ void stencil_plane_shared(const float *in, float *out, int n) {
    __shared__ float tile[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    int i = y * n + x;
    tile[ty][tx] = in[i];
    if (threadIdx.x == 0 && x > 0) tile[ty][0] = in[i - 1];
    if (threadIdx.x == 15 && x < n - 1) tile[ty][17] = in[i + 1];
    if (threadIdx.y == 0 && y > 0) tile[0][tx] = in[i - n];
    if (threadIdx.y == 15 && y < n - 1) tile[17][tx] = in[i + n];
    __syncthreads();
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        out[i] = 0.2f * (tile[ty][tx] + tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx]);
}

// --- streams, arithmetic, local arrays --------------------------------------------------------------
__global__ void saxpy(float a, const float *x, float *y, unsigned n) {
    for (unsigned i = THREAD; i < n; i += ALL) y[i] = a * x[i] + y[i];
}

__global__ void saxpy_chunks(float a, const float *x, float *y, unsigned each) {
    unsigned first = THREAD * each;
    for (unsigned i = first; i < first + each; i++) y[i] = a * x[i] + y[i];
}

__global__ void divide(const float *x, const float *y, float *out, unsigned n, int rounds) {
    unsigned i = THREAD;
    if (i >= n) return;
    float value = x[i] + 1.0f;
    for (int k = 0; k < rounds; k++) value = (value + 1.0f) / (y[i] + 0.5f);
    out[i] = value;
}

__global__ void divide_integers(const unsigned *x, unsigned *out, unsigned n, unsigned divisor) {
    unsigned i = THREAD, sum = 0;
    if (i >= n) return;
    for (unsigned k = 0; k < 16; k++) sum += (x[i] + k) / (divisor + k);
    out[i] = sum;
}

__global__ void sigmoid(const float *x, float *out, unsigned n) {
    for (unsigned i = THREAD; i < n; i += ALL) {
        float y = x[i];
        for (int k = 0; k < 8; k++) y = 1.0f / (1.0f + expf(-y));
        out[i] = y;
    }
}

__global__ void polynomial_double(const double *x, double *out, unsigned n, int degree) {
    unsigned i = THREAD;
    if (i >= n) return;
    double y = 0.0;
    for (int k = 0; k < degree; k++) y = y * x[i] + 0.5;
    out[i] = y;
}

__global__ void double_by_mistake(const float *x, float *out, unsigned n) {
    unsigned i = THREAD;
    if (i < n) out[i] = sqrt(x[i] * 2.5) + 0.1 * x[i];
}

__global__ void median_of_nine(const float *in, float *out, int n) {
    float window[9];
    int i = THREAD;
    if (i < 4 || i >= n - 4) return;
    for (int k = 0; k < 9; k++) window[k] = in[i + k - 4];
    for (int k = 1; k < 9; k++) {
        float key = window[k];
        int j = k - 1;
        while (j >= 0 && window[j] > key) {
            window[j + 1] = window[j];
            j--;
        }
        window[j + 1] = key;
    }
    out[i] = window[4];
}

__global__ void bins_of_thread(const unsigned *x, unsigned *out, unsigned each) {
    unsigned bins[16];
    for (int b = 0; b < 16; b++) bins[b] = 0;
    for (unsigned k = 0; k < each; k++) bins[x[k * ALL + THREAD] % 16]++;
    for (int b = 0; b < 16; b++) out[b * ALL + THREAD] = bins[b];
}

// --- another path per lane in each round, loops of other lengths per lane, arrays sorted by each thread ----------
__global__ void machine(const int *codes, float *out, int n, int steps) {
    int i = THREAD;
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

__global__ void collatz(unsigned *steps, unsigned n) {
    unsigned i = THREAD, count = 0;
    if (i >= n) return;
    unsigned long long value = i + 1;
    while (value != 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        count++;
    }
    steps[i] = count;
}

__global__ void sort_own(float *data, int n) {
    float own[12];
    int i = THREAD;
    for (int k = 0; k < 12; k++) own[k] = data[k * n + i];
    for (int a = 1; a < 12; a++) {
        float key = own[a];
        int b = a;
        for (; b > 0 && own[b - 1] > key; b--) own[b] = own[b - 1];
        own[b] = key;
    }
    for (int k = 0; k < 12; k++) data[k * n + i] = own[k];
}
}

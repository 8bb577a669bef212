// Kernels as students hand them in after the lectures, estimated before they were timed; see homework_launches.py.
#define BLOCK 256
#define TILE 16
#define RADIUS 2
#define POINTS 20

__constant__ float points_x[POINTS];
__constant__ float points_y[POINTS];
__constant__ float blur_weights[25];

extern "C" {
// --- sums over points -----------------------------------------------------------------------------
__global__ void potential_powf(float *out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int i = 0; i < POINTS; i++) {
        float r = sqrtf(powf(x - points_x[i], 2) + powf(y - points_y[i], 2));
        sum += 1.0f / (r + 1.0f);
    }
    out[y * width + x] = sum;
}
__global__ void potential_square(float *out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int i = 0; i < POINTS; i++) {
        float dx = x - points_x[i], dy = y - points_y[i];
        sum += 1.0f / (sqrtf(dx * dx + dy * dy) + 1.0f);
    }
    out[y * width + x] = sum;
}
__global__ void potential_global(const float *px, const float *py, float *out, int width, int count) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int i = 0; i < count; i++) {
        float dx = x - px[i], dy = y - py[i];
        sum += rsqrtf(dx * dx + dy * dy + 0.01f);
    }
    out[y * width + x] = sum;
}

// --- mathematical functions -----------------------------------------------------------------------
__global__ void bell_curve(const float *x, float *y, float mean, float sigma, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = expf(-powf((x[i] - mean) / sigma, 2.0f) / 2.0f) / (sigma * sqrtf(2.0f * 3.14159265f));
}
__global__ void sum_of_waves(const float *x, float *y, int waves, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 1; k <= waves; k++) sum += sinf(k * x[i]) / k;
    y[i] = sum;
}
__global__ void savings(const float *rate, float *result, int years, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float money = 100.0;
        for (int year = 0; year < years; year++) money = money * (1.0 + rate[i] / 100.0) + 10.0;
        result[i] = money;
    }
}
__global__ void hypotenuse_double(const double *a, const double *b, double *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = sqrt(a[i] * a[i] + b[i] * b[i]) / (a[i] + b[i] + 1.0);
}
__global__ void neuron(const float *x, float *y, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float state = 0.1f;
        for (int t = 0; t < steps; t++) state = tanhf(0.9f * state + x[i]);
        y[i] = state;
    }
}
__global__ void entropy(const float *p, float *h, int n) {
    int stride = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        h[i] = p[i] > 0.0f ? -p[i] * log2f(p[i]) - (1.0f - p[i]) * log2f(1.0f - p[i]) : 0.0f;
}

// --- reductions -----------------------------------------------------------------------------------
__global__ void sum_doubles(const double *in, double *out, int n) {
    __shared__ double s[BLOCK];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    s[tid] = i < n ? in[i] : 0.0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void sum_float4(const float4 *in, float *out, int n4) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
        float4 v = in[i];
        sum += v.x + v.y + v.z + v.w;
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void sum_in_global(float *data, int n) {
    float *mine = data + blockIdx.x * blockDim.x;
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        int k = 2 * stride * threadIdx.x;
        if (k < blockDim.x) mine[k] += mine[k + stride];
        __syncthreads();
    }
}
__global__ void chunk_per_thread(const float *in, float *out, int chunk) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < chunk; k++) sum += in[i * chunk + k];
    out[i] = sum;
}

// --- maxima and sums by compare-and-swap ----------------------------------------------------------
__device__ float atomic_max_float(float *address, float value) {
    int *as_int = (int *)address;
    int old = *as_int, assumed;
    do {
        assumed = old;
        old = atomicCAS(as_int, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}
__device__ double atomic_add_double(double *address, double val) {
    unsigned long long int *address_as_ull = (unsigned long long int *)address;
    unsigned long long int old = *address_as_ull, assumed;
    do {
        assumed = old;
        old = atomicCAS(address_as_ull, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
__global__ void max_of_blocks_cas(const float *in, float *out, int n) {
    __shared__ float largest;
    if (threadIdx.x == 0) largest = 0.0f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomic_max_float(&largest, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomic_max_float(out, largest);
}
__global__ void totals_by_group(const double *in, const int *group, double *totals, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomic_add_double(&totals[group[i]], in[i]);
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void hist_shared_lock_free(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned s[64];
    if (threadIdx.x < 64) s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        unsigned *bin = &s[data[i] / 4], seen;
        do {
            seen = *(volatile unsigned *)bin;
        } while (atomicCAS(bin, seen, seen + 1) != seen);
    }
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void hist_of_colors(const uchar4 *pixels, unsigned *bins, int n) {
    __shared__ unsigned s[3 * 256];
    for (int b = threadIdx.x; b < 3 * 256; b += blockDim.x) s[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        uchar4 p = pixels[i];
        atomicAdd(&s[p.x], 1u);
        atomicAdd(&s[256 + p.y], 1u);
        atomicAdd(&s[512 + p.z], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 3 * 256; b += blockDim.x) atomicAdd(&bins[b], s[b]);
}
__global__ void hist_in_local_array(const unsigned char *data, unsigned *bins, int per_thread, int n) {
    unsigned mine[16] = {0};
    int threads = blockDim.x * gridDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < per_thread; k++)
        if (first + k * threads < n) mine[data[first + k * threads] >> 4]++;
    for (int b = 0; b < 16; b++)
        if (mine[b] > 0) atomicAdd(&bins[b], mine[b]);
}

// --- scans ----------------------------------------------------------------------------------------
__global__ void scan_eight_each(const int *in, int *out, int *sums) {
    __shared__ int totals[BLOCK];
    int local[8], sum = 0, base = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (int k = 0; k < 8; k++) {
        sum += in[base + k];
        local[k] = sum;
    }
    totals[threadIdx.x] = sum;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        int other = threadIdx.x >= d ? totals[threadIdx.x - d] : 0;
        __syncthreads();
        totals[threadIdx.x] += other;
        __syncthreads();
    }
    int before = threadIdx.x > 0 ? totals[threadIdx.x - 1] : 0;
    for (int k = 0; k < 8; k++) out[base + k] = before + local[k];
    if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = totals[threadIdx.x];
}
__global__ void scan_naive_global(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = blockIdx.x * blockDim.x; k <= i; k++) sum += in[k];
    out[i] = sum;
}

// --- images ---------------------------------------------------------------------------------------
__global__ void blur_constant_weights(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -RADIUS; dx <= RADIUS; dx++) {
            int cx = min(max(x + dx, 0), width - 1), cy = min(max(y + dy, 0), height - 1);
            sum += in[cy * width + cx] * blur_weights[(dy + RADIUS) * 5 + dx + RADIUS];
        }
    out[y * width + x] = sum;
}
__global__ void blur_shared_tile(const float *in, float *out, int width, int height) {
    __shared__ float tile[TILE + 2 * RADIUS][TILE + 2 * RADIUS];
    int x0 = blockIdx.x * TILE - RADIUS, y0 = blockIdx.y * TILE - RADIUS;
    for (int ty = threadIdx.y; ty < TILE + 2 * RADIUS; ty += TILE)
        for (int tx = threadIdx.x; tx < TILE + 2 * RADIUS; tx += TILE) {
            int gx = x0 + tx, gy = y0 + ty;
            tile[ty][tx] = gx >= 0 && gx < width && gy >= 0 && gy < height ? in[gy * width + gx] : 0.0f;
        }
    __syncthreads();
    float sum = 0;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++) sum += tile[threadIdx.y + dy][threadIdx.x + dx] * blur_weights[dy * 5 + dx];
    out[(blockIdx.y * TILE + threadIdx.y) * width + blockIdx.x * TILE + threadIdx.x] = sum;
}
__global__ void bilateral(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float center = in[y * width + x], sum = 0, total = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int cx = x + dx, cy = y + dy;
            if (cx < 0 || cx >= width || cy < 0 || cy >= height) continue;
            float value = in[cy * width + cx], d = value - center;
            float w = expf(-(dx * dx + dy * dy) / 2.0f) * expf(-d * d / 0.02f);
            sum += w * value;
            total += w;
        }
    out[y * width + x] = sum / total;
}

// --- transposes -----------------------------------------------------------------------------------
__global__ void transpose_rows(const double *in, double *out, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[x * width + y] = in[y * width + x];
}
__global__ void transpose_doubles_tile(const double *in, double *out, int width) {
    __shared__ double tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(y + j) * width + x] = tile[threadIdx.x][threadIdx.y + j];
}

// --- branches -------------------------------------------------------------------------------------
__global__ void shapes(const int *kind, const float *size, float *area, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = size[i];
    switch (kind[i]) {
        case 0: area[i] = s * s; break;
        case 1: area[i] = 3.14159265f * s * s; break;
        case 2: area[i] = sqrtf(3.0f) / 4.0f * s * s; break;
        case 3: area[i] = 6.0f * s * s / (1.0f + s); break;
        case 4: area[i] = expf(s); break;
        default: area[i] = 0.0f;
    }
}
__global__ void grades(const float *points, char *grade, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float p = 100.0f * points[i];
        if (p >= 90) grade[i] = 'A';
        else if (p >= 80) grade[i] = 'B';
        else if (p >= 65) grade[i] = 'C';
        else if (p >= 50) grade[i] = 'D';
        else grade[i] = 'F';
    }
}
__global__ void odd_even_work(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i] + 1.0f;
    if (threadIdx.x % 2 == 0) {
        for (int k = 0; k < 20; k++) v = sqrtf(v) + 1.0f;
    } else {
        for (int k = 0; k < 20; k++) v = 1.0f / v + 1.0f;
    }
    out[i] = v;
}
__global__ void cube_roots(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = 1000.0f * in[i], x = a + 1.0f;
    while (fabsf(x * x * x - a) > 0.01f * (a + 0.01f)) x = (2.0f * x + a / (x * x)) / 3.0f;
    out[i] = x;
}

// --- searches -------------------------------------------------------------------------------------
__global__ void contains_value(const int *x, int value, int *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] == value) *found = 1;
}
__global__ void any_above(const int *x, int limit, int *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > limit) *found = 1;
}
__global__ void mark_seen(const int *x, int *seen, int values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) seen[x[i] % values] = 1;
}
__global__ void last_of_block(const int *x, int *last, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 100) last[blockIdx.x] = i;
}

// --- local arrays, shared columns -----------------------------------------------------------------
__global__ void window_median(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 7 > n) return;
    int w[7];
    for (int k = 0; k < 7; k++) w[k] = in[i + k];
    for (int a = 1; a < 7; a++) {
        int value = w[a], b = a - 1;
        while (b >= 0 && w[b] > value) {
            w[b + 1] = w[b];
            b--;
        }
        w[b + 1] = value;
    }
    out[i] = w[3];
}
__global__ void shared_columns(const float *in, float *out, int width) {
    __shared__ float m[32][32];
    int x = threadIdx.x, y = threadIdx.y, i = (blockIdx.y * 32 + y) * width + blockIdx.x * 32 + x;
    m[y][x] = in[i];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += m[x][k] * m[k][y];
    out[i] = sum;
}
__global__ void particles(const float *state, float *energy, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float *p = state + 7 * i;
        float speed = sqrtf(p[3] * p[3] + p[4] * p[4] + p[5] * p[5]);
        energy[i] = 0.5f * p[6] * speed * speed + p[6] * 9.81f * p[2];
    }
}
}

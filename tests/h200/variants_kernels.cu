// Naive and improved variants of one task, as students and instructors write them, estimated before they were timed;
// see variants_launches.py.
#include <cuda_fp16.h>
#define BLOCK 256
#define TILE 16
#define FULL 0xffffffff

__constant__ int lut[256];
__constant__ float taps[7];
__constant__ float rotation[9];
__constant__ double series[32];

template <int SIZE, typename T>
__device__ void tree(T *s, int tid) {
    if (SIZE >= 512 && tid < 256) s[tid] += s[tid + 256];
    __syncthreads();
    if (SIZE >= 256 && tid < 128) s[tid] += s[tid + 128];
    __syncthreads();
    if (SIZE >= 128 && tid < 64) s[tid] += s[tid + 64];
    __syncthreads();
    if (tid < 32) {
        T sum = s[tid] + s[tid + 32];
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(FULL, sum, offset);
        if (tid == 0) s[0] = sum;
    }
}
template <int RADIUS>
__device__ float around(const float *s, int at) {
    float sum = 0.0f;
#pragma unroll
    for (int k = -RADIUS; k <= RADIUS; k++) sum += taps[k + RADIUS] * s[at + k];
    return sum;
}
__device__ int mix(int v, int way) {
    switch (way) {
        case 0:
            for (int k = 0; k < 12; k++) v = v * 3 + k;
            break;
        case 1:
            for (int k = 0; k < 12; k++) v ^= (v << 5) + (v >> 2);
            break;
        case 2:
            for (int k = 0; k < 12; k++) v = v % 1000 + 77 * k;
            break;
        case 3:
            for (int k = 0; k < 12; k++) v += __popc(v) + k;
            break;
        case 4:
            for (int k = 0; k < 12; k++) v = max(v, 5 * k) - min(v, 100);
            break;
        default:
            for (int k = 0; k < 12; k++) v = (v >> 1) ^ (v & 1 ? 0x5a5a5a5a : 0);
    }
    return v;
}

extern "C" {
// --- sums -----------------------------------------------------------------------------------------
__global__ void sum_modulo(const double *in, double *out, int n) {
    __shared__ double s[BLOCK];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    s[tid] = i < n ? in[i] : 0.0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (tid % (2 * step) == 0) s[tid] += s[tid + step];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void sum_strided_index(const double *in, double *out, int n) {
    __shared__ double s[BLOCK];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    s[tid] = i < n ? in[i] : 0.0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int at = 2 * step * tid;
        if (at < blockDim.x) s[at] += s[at + step];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void sum_first_add(const double *in, double *out, int n) {
    __shared__ double s[BLOCK];
    int tid = threadIdx.x, i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    s[tid] = in[i] + in[i + blockDim.x];
    __syncthreads();
    tree<BLOCK>(s, tid);
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void sum_long_long(const long long *in, long long *out, int n) {
    __shared__ long long s[BLOCK];
    long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    tree<BLOCK>(s, threadIdx.x);
    if (threadIdx.x == 0) atomicAdd((unsigned long long *)out, (unsigned long long)s[0]);
}
__global__ void sum_halves(const __half *in, float *out, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += __half2float(in[i]);
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void sum_half_pairs(const __half2 *in, float *out, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 2; i += gridDim.x * blockDim.x) {
        float2 v = __half22float2(in[i]);
        sum += v.x + v.y;
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

// --- extremes -------------------------------------------------------------------------------------
__global__ void minimum_each(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMin(out, in[i]);
}
__global__ void minimum_of_blocks(const int *in, int *out, int n) {
    __shared__ int smallest;
    if (threadIdx.x == 0) smallest = 0x7fffffff;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMin(&smallest, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicMin(out, smallest);
}
__global__ void minimum_of_warps(const int *in, int *out, int n) {
    int smallest = 0x7fffffff;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        smallest = min(smallest, in[i]);
    smallest = __reduce_min_sync(FULL, smallest);
    if (threadIdx.x % 32 == 0) atomicMin(out, smallest);
}
__global__ void maximum_double_cas(const double *in, unsigned long long *out, int n) {
    __shared__ double s[BLOCK];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = in[i];
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = fmax(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        unsigned long long old = *out, assumed;
        do {
            assumed = old;
            if (__longlong_as_double(assumed) >= s[0]) break;
            old = atomicCAS(out, assumed, __double_as_longlong(s[0]));
        } while (assumed != old);
    }
}
__global__ void sum_with_lock(const float *in, float *out, int *mutex, int n) {
    __shared__ float s[BLOCK];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    tree<BLOCK>(s, threadIdx.x);
    if (threadIdx.x == 0) {
        while (atomicCAS(mutex, 0, 1) != 0);
        __threadfence();
        *(volatile float *)out = *(volatile float *)out + s[0];
        __threadfence();
        atomicExch(mutex, 0);
    }
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void bytes_global(const unsigned char *data, unsigned *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[data[i]], 1);
}
__global__ void bytes_shared(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[data[i]], 1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void bytes_replicated(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned s[8][257];
    for (int b = threadIdx.x; b < 8 * 257; b += blockDim.x) (&s[0][0])[b] = 0;
    __syncthreads();
    int copy = threadIdx.x / 32;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&s[copy][data[i]], 1);
    __syncthreads();
    unsigned total = 0;
    for (int c = 0; c < 8; c++) total += s[c][threadIdx.x];
    atomicAdd(&bins[threadIdx.x], total);
}
__global__ void weights_shared(const double *weight, const unsigned char *key, double *bins, int n) {
    __shared__ double s[32];
    if (threadIdx.x < 32) s[threadIdx.x] = 0.0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&s[key[i] % 32], weight[i]);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void weights_global(const double *weight, const unsigned char *key, double *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[key[i] % 32], weight[i]);
}
__global__ void products_cas(const float *factor, const int *key, int *products, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int *address = &products[key[i]];
    int old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, __float_as_int(__int_as_float(assumed) * (1.0f + factor[i])));
    } while (old != assumed);
}

// --- scans ----------------------------------------------------------------------------------------
__device__ int padded(int i) {
    return i + i / 32;
}
#define BLELLOCH(NAME, AT)                                                        \
    __global__ void NAME(const int *in, int *out, int *sums) {                    \
        __shared__ int s[2 * BLOCK + 2 * BLOCK / 32];                             \
        int tid = threadIdx.x, base = 2 * BLOCK * blockIdx.x, offset = 1, last = 2 * BLOCK - 1; \
        s[AT(2 * tid)] = in[base + 2 * tid];                                      \
        s[AT(2 * tid + 1)] = in[base + 2 * tid + 1];                              \
        for (int d = BLOCK; d > 0; d >>= 1) {                                     \
            __syncthreads();                                                      \
            if (tid < d) s[AT(offset * (2 * tid + 2) - 1)] += s[AT(offset * (2 * tid + 1) - 1)]; \
            offset *= 2;                                                          \
        }                                                                         \
        if (tid == 0) {                                                           \
            sums[blockIdx.x] = s[AT(last)];                                       \
            s[AT(last)] = 0;                                                      \
        }                                                                         \
        for (int d = 1; d < 2 * BLOCK; d *= 2) {                                  \
            offset >>= 1;                                                         \
            __syncthreads();                                                      \
            if (tid < d) {                                                        \
                int a = AT(offset * (2 * tid + 1) - 1), b = AT(offset * (2 * tid + 2) - 1), t = s[a]; \
                s[a] = s[b];                                                      \
                s[b] += t;                                                        \
            }                                                                     \
        }                                                                         \
        __syncthreads();                                                          \
        out[base + 2 * tid] = s[AT(2 * tid)];                                     \
        out[base + 2 * tid + 1] = s[AT(2 * tid + 1)];                             \
    }
#define PLAIN(i) (i)
BLELLOCH(scan_tree_conflicts, PLAIN)
BLELLOCH(scan_tree_padded, padded)
__global__ void scan_in_place_doubles(const double *in, double *out, int n) {
    extern __shared__ double values[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    values[tid] = i < n ? in[i] : 0.0;
    for (int d = 1; d < blockDim.x; d <<= 1) {
        __syncthreads();
        double before = tid >= d ? values[tid - d] : 0.0;
        __syncthreads();
        values[tid] += before;
    }
    if (i < n) out[i] = values[tid];
}
__global__ void scan_warps_long(const long long *in, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    if (i >= n) return;
    long long v = in[i];
    for (int d = 1; d < 32; d *= 2) {
        long long other = __shfl_up_sync(FULL, v, d);
        if (lane >= d) v += other;
    }
    out[i] = v;
}
__global__ void scan_each_row(const int *in, int *out, int width, int height) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height) return;
    int sum = 0;
    for (int x = 0; x < width; x++) {
        sum += in[row * width + x];
        out[row * width + x] = sum;
    }
}
__global__ void scan_each_column(const int *in, int *out, int width, int height) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    int sum = 0;
    for (int y = 0; y < height; y++) {
        sum += in[y * width + column];
        out[y * width + column] = sum;
    }
}

// --- stencils -------------------------------------------------------------------------------------
__global__ void seven_global(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = -3; k <= 3; k++)
        if (i + k >= 0 && i + k < n) sum += taps[k + 3] * in[i + k];
    out[i] = sum;
}
__global__ void seven_shared(const float *in, float *out, int n) {
    __shared__ float s[BLOCK + 6];
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x + 3;
    s[at] = in[i];
    if (threadIdx.x < 3) {
        s[threadIdx.x] = i >= 3 ? in[i - 3] : 0.0f;
        s[at + BLOCK] = i + BLOCK < n ? in[i + BLOCK] : 0.0f;
    }
    __syncthreads();
    out[i] = around<3>(s, at);
}
__global__ void laplace_global(const double *in, double *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * width + x;
    if (x == 0 || y == 0 || x >= width - 1 || y >= height - 1) return;
    out[i] = 0.25 * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width]) - in[i];
}
__global__ void laplace_shared(const double *in, double *out, int width, int height) {
    __shared__ double s[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y, i = y * width + x;
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    s[ty][tx] = in[i];
    if (tx == 1 && x > 0) s[ty][0] = in[i - 1];
    if (tx == TILE && x < width - 1) s[ty][TILE + 1] = in[i + 1];
    if (ty == 1 && y > 0) s[0][tx] = in[i - width];
    if (ty == TILE && y < height - 1) s[TILE + 1][tx] = in[i + width];
    __syncthreads();
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1)
        out[i] = 0.25 * (s[ty][tx - 1] + s[ty][tx + 1] + s[ty - 1][tx] + s[ty + 1][tx]) - s[ty][tx];
}
__global__ void smooth_rows(const unsigned char *in, unsigned char *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int sum = 0;
    for (int k = -4; k <= 4; k++) sum += in[y * width + min(max(x + k, 0), width - 1)];
    out[y * width + x] = sum / 9;
}
__global__ void smooth_columns(const unsigned char *in, unsigned char *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int sum = 0;
    for (int k = -4; k <= 4; k++) sum += in[min(max(y + k, 0), height - 1) * width + x];
    out[y * width + x] = sum / 9;
}

// --- tables ---------------------------------------------------------------------------------------
__global__ void table_constant(const unsigned char *data, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = lut[data[i]];
}
__global__ void table_global(const unsigned char *data, const int *table, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[data[i]];
}
__global__ void table_shared(const unsigned char *data, const int *table, int *out, int n) {
    __shared__ int s[256];
    s[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = s[data[i]];
}
__global__ void points_rotated(const float3 *in, float3 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 p = in[i], q;
    q.x = rotation[0] * p.x + rotation[1] * p.y + rotation[2] * p.z;
    q.y = rotation[3] * p.x + rotation[4] * p.y + rotation[5] * p.z;
    q.z = rotation[6] * p.x + rotation[7] * p.y + rotation[8] * p.z;
    out[i] = q;
}
__global__ void series_together(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0;
    for (int k = 31; k >= 0; k--) sum = sum * x[i] + series[k];
    y[i] = sum;
}
__global__ void series_by_lane(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0;
    for (int k = 0; k < 32; k++) sum = sum * x[i] + series[(k + threadIdx.x) % 32];
    y[i] = sum;
}

// --- branches -------------------------------------------------------------------------------------
__global__ void six_ways_lanes(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = mix(in[i], threadIdx.x % 6);
}
__global__ void six_ways_warps(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = mix(in[i], i / 32 % 6);
}
__global__ void six_ways_data(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = mix(in[i], in[i] % 6);
}
__global__ void sine_or_root(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (in[i] > 0.5)
        out[i] = sqrt(in[i]) + 1.0 / in[i];
    else
        out[i] = in[i] * in[i] * in[i] - 0.5 * in[i];
}
__global__ void length_by_lane(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = in[i];
    for (int k = 0; k <= threadIdx.x % 64; k++) v = v * 0.99f + 0.01f;
    out[i] = v;
}
__global__ void greatest_common(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    while (y != 0) {
        long long rest = x % y;
        x = y;
        y = rest;
    }
    out[i] = x;
}

// --- matrices -------------------------------------------------------------------------------------
__global__ void product_ints(const int *a, const int *b, int *c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && column < n) {
        int sum = 0;
        for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
        c[row * n + column] = sum;
    }
}
__global__ void product_ints_swapped(const int *a, const int *b, int *c, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) {
        int sum = 0;
        for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
        c[row * n + column] = sum;
    }
}
__global__ void product_ints_tiled(const int *a, const int *b, int *c, int n) {
    __shared__ int as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx, sum = 0;
    for (int t = 0; t < n / TILE; t++) {
        as[ty][tx] = a[row * n + t * TILE + tx];
        bs[ty][tx] = b[(t * TILE + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
__global__ void product_halves(const __half *a, const __half *b, float *c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += __half2float(a[row * n + k]) * __half2float(b[k * n + column]);
    c[row * n + column] = sum;
}
__global__ void product_four_each(const int *a, const int *b, int *c, int n) {
    int row = 4 * (blockIdx.y * blockDim.y + threadIdx.y), column = blockIdx.x * blockDim.x + threadIdx.x;
    int sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < n; k++) {
        int right = b[k * n + column];
#pragma unroll
        for (int r = 0; r < 4; r++) sum[r] += a[(row + r) * n + k] * right;
    }
    for (int r = 0; r < 4; r++) c[(row + r) * n + column] = sum[r];
}
__global__ void vector_by_threads(const double *m, const double *v, double *out, int width, int height) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height) return;
    double sum = 0.0;
    for (int k = 0; k < width; k++) sum += m[row * width + k] * v[k];
    out[row] = sum;
}
__global__ void vector_by_warps(const double *m, const double *v, double *out, int width, int height) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= height) return;
    double sum = 0.0;
    for (int k = lane; k < width; k += 32) sum += m[row * width + k] * v[k];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(FULL, sum, offset);
    if (lane == 0) out[row] = sum;
}
__global__ void add_by_rows(const int *a, const int *b, int *c, int width, int height) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height)
        for (int k = 0; k < width; k++) c[row * width + k] = a[row * width + k] + b[row * width + k];
}
__global__ void add_by_columns(const int *a, const int *b, int *c, int width, int height) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < width)
        for (int k = 0; k < height; k++) c[k * width + column] = a[k * width + column] + b[k * width + column];
}

// --- few blocks, small blocks, much shared memory -------------------------------------------------
__global__ void axpy_strided(double a, const double *x, double *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}
__global__ void rows_sorted(const int *in, int *out) {
    __shared__ int s[64 * 32];
    int first = blockIdx.x * 64 * 32;
    for (int k = threadIdx.x; k < 64 * 32; k += 64) s[k] = in[first + k];
    __syncthreads();
    int *mine = s + 32 * threadIdx.x;
    for (int a = 0; a < 31; a++)
        for (int b = 0; b < 31 - a; b++)
            if (mine[b] > mine[b + 1]) {
                int t = mine[b];
                mine[b] = mine[b + 1];
                mine[b + 1] = t;
            }
    __syncthreads();
    for (int k = threadIdx.x; k < 64 * 32; k += 64) out[first + k] = s[k];
}
__global__ void rows_sorted_padded(const int *in, int *out) {
    __shared__ int s[64 * 33];
    int first = blockIdx.x * 64 * 32;
    for (int k = threadIdx.x; k < 64 * 32; k += 64) s[k / 32 * 33 + k % 32] = in[first + k];
    __syncthreads();
    int *mine = s + 33 * threadIdx.x;
    for (int a = 0; a < 31; a++)
        for (int b = 0; b < 31 - a; b++)
            if (mine[b] > mine[b + 1]) {
                int t = mine[b];
                mine[b] = mine[b + 1];
                mine[b + 1] = t;
            }
    __syncthreads();
    for (int k = threadIdx.x; k < 64 * 32; k += 64) out[first + k] = s[k / 32 * 33 + k % 32];
}
__global__ void strip_in_shared(const float *in, float *out, int rounds) {
    extern __shared__ float strip[];
    int per_block = 8192, first = blockIdx.x * per_block;
    for (int k = threadIdx.x; k < per_block; k += blockDim.x) strip[k] = in[first + k];
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        for (int k = threadIdx.x; k < per_block; k += blockDim.x) strip[k] = 0.5f * strip[k] + 0.25f;
        __syncthreads();
    }
    for (int k = threadIdx.x; k < per_block; k += blockDim.x) out[first + k] = strip[k];
}
}

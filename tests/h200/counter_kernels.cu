// Small kernels of many shapes; Nsight Compute's counters of each were read on an NVIDIA H200 (see counter_launches.py).
extern "C" {
// --- histograms and other atomics -------------------------------------------------------------------
__global__ void histogram_shared(const unsigned *in, unsigned *bins, unsigned n) {
    __shared__ unsigned s[64];
    if (threadIdx.x < 64) s[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&s[in[i] & 63], 1u);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void histogram_global(const unsigned *in, unsigned *bins, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i] & 255], 1u);
}
__global__ void atomic_results(const unsigned *in, unsigned *state, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned ticket = atomicAdd(&state[0], 1u);
    unsigned seen = atomicMax(&state[32 + (in[i] & 31)], in[i]);
    unsigned swapped = atomicCAS(&state[64 + (i & 1023)], 0u, i);
    out[i] = ticket + seen + swapped;
}
__global__ void shared_atomic_kinds(const float *in, float *out, int spread) {
    __shared__ float sum[32];
    __shared__ int top[32];
    int t = threadIdx.x;
    if (t < 32) { sum[t] = 0; top[t] = 0; }
    __syncthreads();
    float x = in[blockIdx.x * blockDim.x + t];
    atomicAdd(&sum[t & spread], x);
    atomicMax(&top[t & spread], (int)(x * 1000));
    __syncthreads();
    if (t < 32) out[blockIdx.x * 32 + t] = sum[t] + top[t];
}
// --- tiles -------------------------------------------------------------------------------------------
__global__ void transpose_plain(const float *in, float *out, int width) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[x * width + y + k] = in[(y + k) * width + x];
}
__global__ void transpose_tile(const float *in, float *out, int width) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(y + k) * width + x] = tile[threadIdx.x][threadIdx.y + k];
}
__global__ void transpose_padded_tile(const float *in, float *out, int width) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(y + k) * width + x] = tile[threadIdx.x][threadIdx.y + k];
}
__global__ void matmul_tile(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int m = 0; m < n; m += 16) {
        as[ty][tx] = a[row * n + m + tx];
        bs[ty][tx] = b[(m + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
__global__ void stencil_halo(const float *in, float *out, int n) {
    __shared__ float s[256 + 8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t + 4] = i < n ? in[i] : 0;
    if (t < 4) {
        s[t] = i >= 4 ? in[i - 4] : 0;
        s[t + 260] = i + 256 < n ? in[i + 256] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int k = -4; k <= 4; k++) sum += s[t + 4 + k];
    if (i < n) out[i] = sum / 9;
}
// --- wide accesses -----------------------------------------------------------------------------------
__global__ void reduce_vectors(const int4 *in, int *out, unsigned n) {
    int sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int4 v = in[i];
        sum += v.x + v.y + v.z + v.w;
    }
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, sum);
}
__global__ void shared_pairs(const float2 *in, float2 *out, int stride) {
    __shared__ float2 s[1024];
    int t = threadIdx.x, base = blockIdx.x * 128;
    s[t * stride & 1023] = in[base + t];
    __syncthreads();
    float2 v = s[(127 - t) * stride & 1023];
    out[base + t] = make_float2(v.y, v.x);
}
__global__ void shared_quads(const float4 *in, float4 *out, int stride) {
    __shared__ float4 s[1024];
    int t = threadIdx.x, base = blockIdx.x * 128;
    s[t * stride & 1023] = in[base + t];
    __syncthreads();
    float4 v = s[(127 - t) * stride & 1023];
    out[base + t] = make_float4(v.w, v.z, v.y, v.x);
}
__global__ void copy_bytes(const unsigned char *in, unsigned char *out, int n, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + offset < n) out[i] = in[i + offset];
}
__global__ void structures(const double3 *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { double3 p = in[i]; out[i] = sqrt(p.x * p.x + p.y * p.y + p.z * p.z); }
}
// --- scans and sorts ---------------------------------------------------------------------------------
__global__ void scan_warps(const int *in, int *out, int n) {
    __shared__ int sums[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, i = blockIdx.x * blockDim.x + t;
    int v = i < n ? in[i] : 0;
    for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, v, d); if (lane >= d) v += u; }
    if (lane == 31) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int w = lane < (int)blockDim.x / 32 ? sums[lane] : 0;
        for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, w, d); if (lane >= d) w += u; }
        sums[lane] = w;
    }
    __syncthreads();
    if (warp > 0) v += sums[warp - 1];
    if (i < n) out[i] = v;
}
__global__ void sort_bitonic(int *data, int n) {
    extern __shared__ int keys[];
    int t = threadIdx.x;
    keys[t] = data[blockIdx.x * n + t];
    for (int k = 2; k <= n; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int other = t ^ j;
            if (other > t && ((t & k) == 0) == (keys[t] > keys[other])) {
                int swap = keys[t];
                keys[t] = keys[other];
                keys[other] = swap;
            }
        }
    __syncthreads();
    data[blockIdx.x * n + t] = keys[t];
}
// --- divergence --------------------------------------------------------------------------------------
__global__ void collatz(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = i + 1;
    int steps = 0;
    while (x != 1) { x = x & 1 ? 3 * x + 1 : x / 2; steps++; }
    out[i] = steps;
}
__global__ void eight_ways(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    switch (i & 7) {
    case 0: for (int k = 0; k < 20; k++) x = x * x + 0.1f; break;
    case 1: for (int k = 0; k < 20; k++) x = expf(x) - 1; break;
    case 2: for (int k = 0; k < 20; k++) x = sqrtf(x + 1); break;
    case 3: for (int k = 0; k < 20; k++) x = 1 / (x + 1); break;
    case 4: for (int k = 0; k < 20; k++) x = cosf(x); break;
    case 5: for (int k = 0; k < 20; k++) x = logf(x + 2); break;
    case 6: for (int k = 0; k < 20; k++) x = x / 3 + 1; break;
    default: for (int k = 0; k < 20; k++) x = fabsf(x - 0.5f);
    }
    out[i] = x;
}
__global__ void mandelbrot(unsigned char *out, int width, int most) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    float cx = px * 3.0f / width - 2, cy = py * 2.0f / width - 1, x = 0, y = 0;
    int k = 0;
    for (; k < most && x * x + y * y < 4; k++) { float u = x * x - y * y + cx; y = 2 * x * y + cy; x = u; }
    out[py * width + px] = k;
}
__global__ void search_sorted(const int *sorted, const int *keys, int *out, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    int low = 0, high = n, key = keys[i];
    while (low < high) { int mid = (low + high) / 2; if (sorted[mid] < key) low = mid + 1; else high = mid; }
    out[i] = low;
}
__global__ void rows_csr(const int *starts, const int *columns, const float *values, const float *x, float *y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}
// --- arithmetic that becomes many instructions -------------------------------------------------------
__global__ void divisions(const float *in, float *out, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    for (int k = 1; k <= m; k++) x = x / (k + x) + (float)(i / k) + (float)(i % (k + 2));
    out[i] = x;
}
__global__ void doubles(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = exp(in[i]) / (1 + sqrt(in[i])) + log(in[i] + 1);
}
__global__ void wide_integers(const unsigned long long *in, unsigned long long *out, unsigned long long m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { unsigned long long x = in[i] * 0x123456789abcdefull; out[i] = x % m + x / (m + i) + __umul64hi(x, m); }
}
__global__ void softmax_rows(const float *in, float *out, int width) {
    __shared__ float s[128];
    int t = threadIdx.x;
    const float *row = in + blockIdx.x * width;
    float top = -1e30f, sum = 0;
    for (int k = t; k < width; k += 128) top = fmaxf(top, row[k]);
    s[t] = top;
    __syncthreads();
    for (int k = 64; k > 0; k >>= 1) { if (t < k) s[t] = fmaxf(s[t], s[t + k]); __syncthreads(); }
    top = s[0];
    __syncthreads();
    for (int k = t; k < width; k += 128) sum += expf(row[k] - top);
    s[t] = sum;
    __syncthreads();
    for (int k = 64; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    sum = s[0];
    for (int k = t; k < width; k += 128) out[blockIdx.x * width + k] = expf(row[k] - top) / sum;
}
__device__ __noinline__ float horner(float x, const float *c, int n) {
    float y = c[n - 1];
    for (int k = n - 2; k >= 0; k--) y = y * x + c[k];
    return y;
}
__global__ void call_function(const float *in, const float *c, float *out, int n, int terms) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = horner(in[i], c, terms) + (i % 3 == 0 ? horner(0.5f, c, terms) : 0);
}
// --- constant memory ---------------------------------------------------------------------------------
__constant__ float words[512];
__constant__ double wide_words[64];
__constant__ float4 quads[64];
__global__ void constant_words(float *out, int mask, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += words[(i * step & mask) + k * 16];
    out[i] = sum;
}
__global__ void constant_doubles(double *out, int mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    for (int k = 0; k < 4; k++) sum += wide_words[(i & mask) + k * 8];
    out[i] = sum;
}
__global__ void constant_quads(float *out, int mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 4; k++) { float4 q = quads[(i & mask) + k * 8]; sum += q.x * q.y + q.z * q.w; }
    out[i] = sum;
}
__global__ void polynomial_constant(const float *in, float *out, int n, int terms) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], y = 0;
    for (int k = 0; k < terms; k++) y = y * x + words[k];
    out[i] = y;
}
__global__ void spilled_array(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, held[16];
    for (int k = 0; k < 16; k++) held[k] = in[(i + k) % n];
    int at = 0;
    for (int k = 0; k < 16; k++) at = held[(at + k) & 15] & 15;
    out[i] = at;
}
}

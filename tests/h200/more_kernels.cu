// Kernels whose times were measured on an NVIDIA H200: each loads one resource of the GPU, or is a textbook classic.
extern "C" {
__global__ void nothing() {}

// --- copies -------------------------------------------------------------------------------------
__global__ void copy_words(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}
__global__ void copy_vectors(const float4 *in, float4 *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}
__global__ void copy_grid_stride(const float *in, float *out, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i];
}
__global__ void copy_offset(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) out[i] = in[i + 1];
}
__global__ void scatter_strided(const float *in, float *out, unsigned n, unsigned stride) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned rows = n / stride, j = (t % rows) * stride + t / rows;
    if (t < n) out[j] = in[t];
}
// every stride-th element only: no sector is ever shared
__global__ void pick_strided(const float *in, float *out, unsigned count, unsigned stride) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i * stride];
}
__global__ void gather_random(const float *in, float *out, unsigned n, unsigned mask) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
    if (i < n) out[i] = in[h & mask];
}
__global__ void read_again(const float *in, float *out, unsigned n, int times) {
    unsigned total = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    float a = 0;
    for (int k = 0; k < times; k++)
        for (unsigned i = first; i < n; i += total) a += in[(i + k * 4096) % n];
    out[first] = a;
}

// --- transpose ----------------------------------------------------------------------------------
__global__ void transpose_naive(const float *in, float *out, unsigned width) {
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (unsigned k = 0; k < 32; k += 8) out[x * width + y + k] = in[(y + k) * width + x];
}
__global__ void transpose_conflicts(const float *in, float *out, unsigned width) {
    __shared__ float tile[32][32];
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (unsigned k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (unsigned k = 0; k < 32; k += 8) out[(y + k) * width + x] = tile[threadIdx.x][threadIdx.y + k];
}
__global__ void transpose_padded(const float *in, float *out, unsigned width) {
    __shared__ float tile[32][33];
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (unsigned k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (unsigned k = 0; k < 32; k += 8) out[(y + k) * width + x] = tile[threadIdx.x][threadIdx.y + k];
}

// --- matrix products, stencil ---------------------------------------------------------------------
__global__ void matmul_naive(const float *a, const float *b, float *c, unsigned n) {
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
__global__ void matmul_columns(const float *a, const float *b, float *c, unsigned n) {
    unsigned y = blockIdx.x * 16 + threadIdx.x, x = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
__global__ void matmul_tiled(const float *a, const float *b, float *c, unsigned n) {
    __shared__ float s[16][16], t[16][16];
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < n; k += 16) {
        s[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += s[threadIdx.y][j] * t[j][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}
__global__ void stencil_naive(const float *in, float *out, unsigned width) {
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < 2 || y < 2 || x >= width - 2 || y >= width - 2) return;
    float sum = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) sum += in[(y + dy) * width + x + dx];
    out[y * width + x] = sum;
}
__global__ void stencil_shared(const float *in, float *out, unsigned width) {
    __shared__ float tile[12][36];
    unsigned x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
    for (unsigned t = threadIdx.y * 32 + threadIdx.x; t < 12 * 36; t += 256) {
        unsigned x = min(max((int)(x0 + t % 36) - 2, 0), (int)width - 1);
        unsigned y = min(max((int)(y0 + t / 36) - 2, 0), (int)width - 1);
        tile[t / 36][t % 36] = in[y * width + x];
    }
    __syncthreads();
    float sum = 0;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++) sum += tile[threadIdx.y + dy][threadIdx.x + dx];
    out[(y0 + threadIdx.y) * width + x0 + threadIdx.x] = sum;
}

// --- histograms, atomics, orders ------------------------------------------------------------------
__global__ void histogram_global(const unsigned *in, unsigned *bins, unsigned n, unsigned mask) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i] & mask], 1u);
}
__global__ void histogram_shared(const unsigned *in, unsigned *bins, unsigned n, unsigned mask) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&s[in[i] & mask], 1u);
    __syncthreads();
    if (s[threadIdx.x]) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void atomic_ticket(unsigned *counter, unsigned *out) {
    unsigned mine = 0;
    if (threadIdx.x == 0) mine = atomicAdd(counter, 1u);
    if (threadIdx.x == 0) out[blockIdx.x] = mine;
}
__global__ void atomic_spread(unsigned *bins, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[i], 1u);
}
__global__ void sum_by_atomics(const int *in, int *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int a = i < n ? in[i] : 0;
    for (int d = 16; d; d >>= 1) a += __shfl_down_sync(~0u, a, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, a);
}
__global__ void copy_fenced(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { out[i] = in[i]; __threadfence(); }
}
// each block waits for the one before it: the time of one hop
__global__ void chain(volatile unsigned *flags, unsigned *ticket) {
    __shared__ unsigned mine;
    if (threadIdx.x == 0) {
        mine = atomicAdd(ticket, 1u);
        if (mine > 0) while (flags[mine - 1] == 0) {}
        flags[mine] = 1;
    }
}
__global__ void chain_fenced(volatile unsigned *flags, volatile unsigned *values, unsigned *ticket) {
    if (threadIdx.x == 0) {
        unsigned mine = atomicAdd(ticket, 1u), before = 0;
        if (mine > 0) {
            while (flags[mine - 1] == 0) {}
            __threadfence();
            before = values[mine - 1];
        }
        values[mine] = before + 1;
        __threadfence();
        flags[mine] = 1;
    }
}

// --- arithmetic: 256 rounds a thread ------------------------------------------------------------
#define ROUNDS 256
#define LOOP(name, type, start, step) \
    __global__ void name(type *out, type p) { \
        type x = (type)threadIdx.x + (start); \
        _Pragma("unroll 8") \
        for (int i = 0; i < ROUNDS; i++) { step; } \
        out[blockIdx.x * blockDim.x + threadIdx.x] = x; \
    }
LOOP(math_fma, float, 1.f, x = x * p + 1.f)
LOOP(math_double, double, 1.0, x = x * p + 1.0)
LOOP(math_integer, int, 1, x = x * p + 12345)
LOOP(math_shift, unsigned, 1, x = (x << 3) ^ (x >> 5) ^ p)
LOOP(math_fast_sine, float, 1.f, x = __sinf(x) + p)
LOOP(math_sine, float, 1.f, x = sinf(x) + p)
LOOP(math_exp, float, 1.f, x = __expf(-x) + p)
LOOP(math_rsqrt, float, 1.f, x = rsqrtf(x) + p)
LOOP(math_sqrt, float, 1.f, x = sqrtf(x) + p)
LOOP(math_log, float, 1.f, x = logf(x) + p)
LOOP(math_divide, float, 1.f, x = p / x + 1.f)
LOOP(math_remainder, unsigned, 1, x = 1000003u % (x | 1u) + p)
LOOP(math_float_to_int, float, 1.f, x = (float)((int)x) + p)
__global__ void math_fma_wide(float *out, float p) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < ROUNDS; i++) { a = a * p + 1; b = b * p + 2; c = c * p + 3; d = d * p + 4; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
// lanes take 1, 2, ... 32 ways
__global__ void math_diverge(float *out, float p, unsigned ways) {
    float x = threadIdx.x;
    unsigned way = threadIdx.x % ways;
    for (unsigned w = 0; w < ways; w++)
        if (w == way) for (int i = 0; i < 64; i++) x = __sinf(x) * p + w;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// --- shared memory, warps, barriers, constants ----------------------------------------------------
__global__ void shared_strided(float *out, unsigned stride) {
    __shared__ float s[1024];
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = i;
    __syncthreads();
    float a = 0;
    unsigned j = threadIdx.x * stride & 1023;
    for (int i = 0; i < ROUNDS; i++) { a += s[j]; j = (j + 32) & 1023; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void shared_vectors(float *out) {
    __shared__ float4 s[512];
    for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) s[i] = make_float4(i, 1, 2, 3);
    __syncthreads();
    float a = 0;
    unsigned j = threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) { float4 v = s[j & 511]; a += v.x + v.y + v.z + v.w; j += 32; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void shared_atomics(unsigned *out, unsigned mask) {
    __shared__ unsigned s[1024];
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = 0;
    __syncthreads();
    for (int i = 0; i < ROUNDS; i++) atomicAdd(&s[(threadIdx.x + i * 32) & mask], 1u);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
}
__global__ void shuffles(float *out) {
    float x = threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) x += __shfl_xor_sync(~0u, x, i & 31);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
__global__ void barriers(float *out) {
    float x = threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) { __syncthreads(); x += 1; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
__constant__ float table[1024];
__global__ void constants(float *out, unsigned spread) {
    float a = 0;
    for (int i = 0; i < ROUNDS; i++) a += table[(i + (threadIdx.x & spread)) & 1023];
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void local_array(float *out, unsigned p) {
    float held[64];
    for (int i = 0; i < 64; i++) held[i] = i * p;
    float a = 0;
    unsigned j = threadIdx.x;
    for (int i = 0; i < ROUNDS; i++) { a += held[j & 63]; j = j * 5 + 1; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

// --- latency: one warp or few -----------------------------------------------------------------------
__global__ void chase(const unsigned *next, unsigned *out, int steps) {
    unsigned j = (blockIdx.x * blockDim.x + threadIdx.x) * 1024;
    for (int i = 0; i < steps; i++) j = next[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = j;
}
__global__ void chase_shared(unsigned *out, int steps) {
    __shared__ unsigned next[1024];
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) next[i] = (i + 32) & 1023;
    __syncthreads();
    unsigned j = threadIdx.x;
    for (int i = 0; i < steps; i++) j = next[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = j;
}
__global__ void sum_serial(const float *in, float *out, int n) {
    float a = 0;
    for (int i = 0; i < n; i++) a += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
// little work by many short blocks
__global__ void touch(float *out) { if (threadIdx.x == 0) out[blockIdx.x] = 1; }
// a copy that shared memory keeps from having many warps
__global__ void copy_few_warps(const float *in, float *out, unsigned n) {
    extern __shared__ float s[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = in[i < n ? i : 0];
    if (i < n) out[i] = s[threadIdx.x] + 1;
}
}

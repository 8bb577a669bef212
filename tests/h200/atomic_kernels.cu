// Kernels in which the lanes of a warp meet: at one address of global or shared memory, in few bins of a histogram, or
// at different addresses of constant memory.
extern "C" {
constexpr int ROUNDS = 16;
__device__ unsigned thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// --- one address of global memory: the compiler adds up the values of a warp, if they are integers -----------------
__global__ void global_count(unsigned *out) { atomicAdd(out, 1u); }
__global__ void global_add(int *out, const int *in) { atomicAdd(out, in[thread()]); }
__global__ void global_max(int *out, const int *in) { atomicMax(out, in[thread()]); }
__global__ void global_or(unsigned *out, const unsigned *in) { atomicOr(out, in[thread()]); }
__global__ void global_add_float(float *out, const float *in) { atomicAdd(out, in[thread()]); }
__global__ void global_add_double(double *out, const float *in) { atomicAdd(out, (double)in[thread()]); }
__global__ void global_add_long(unsigned long long *out, const unsigned *in) { atomicAdd(out, (unsigned long long)in[thread()]); }
__global__ void global_ticket(unsigned *out, unsigned *tickets) { tickets[thread()] = atomicAdd(out, 1u); }
__global__ void global_add_result(int *out, const int *in, int *seen) { seen[thread()] = atomicAdd(out, in[thread()]); }
__global__ void global_exchange(unsigned *out, unsigned *seen) { seen[thread()] = atomicExch(out, thread()); }
__global__ void global_count_odd(unsigned *out, const unsigned *in) { if (in[thread()] & 1) atomicAdd(out, 1u); }
__global__ void global_sum(const int *in, int *out, unsigned n) {
    int sum = 0;
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) sum += in[i];
    atomicAdd(out, sum);
}

// --- addresses that the compiler does not know to be the same ------------------------------------------------------
__global__ void global_bins(unsigned *bins, unsigned a, unsigned b, unsigned mask) {
    for (int k = 0; k < ROUNDS; k++) atomicAdd(&bins[(threadIdx.x % 32 * a + thread() / 32 * b + k * 7) & mask], 1u);
}
__global__ void global_bins_float(float *bins, unsigned a, unsigned b, unsigned mask) {
    for (int k = 0; k < ROUNDS; k++) atomicAdd(&bins[(threadIdx.x % 32 * a + thread() / 32 * b + k * 7) & mask], 1.5f);
}
__global__ void global_histogram(const unsigned *in, unsigned *bins, unsigned n, unsigned mask) {
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i] & mask], 1u);
}

// --- shared memory -------------------------------------------------------------------------------------------------
#define SHARED(NAME, TYPE, FILL, DO)                                                                                   \
    __global__ void NAME(const TYPE *in, TYPE *out, unsigned a, unsigned mask) {                                       \
        __shared__ TYPE s[1024];                                                                                       \
        for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = FILL;                                         \
        __syncthreads();                                                                                               \
        TYPE value = in[thread()];                                                                                     \
        for (int k = 0; k < ROUNDS; k++) { DO; }                                                                       \
        __syncthreads();                                                                                               \
        out[thread()] = s[threadIdx.x] + value;                                                                        \
    }
#define BIN s[(threadIdx.x * a + k * 5) & mask]
SHARED(shared_count, unsigned, 0, atomicAdd(&s[k], 1u))
SHARED(shared_add, int, 0, atomicAdd(&s[k], value))
SHARED(shared_max, int, 0, atomicMax(&s[k], value))
SHARED(shared_add_float, float, 0, atomicAdd(&s[k], value))
SHARED(shared_ticket, unsigned, 0, value += atomicAdd(&s[k], 1u))
SHARED(shared_add_result, int, 0, value ^= atomicAdd(&s[k], value))
SHARED(shared_exchange, unsigned, 0, value += atomicExch(&s[k], value))
SHARED(shared_bins, unsigned, 0, atomicAdd(&BIN, 1u))
SHARED(shared_bins_add, int, 0, atomicAdd(&BIN, value))
SHARED(shared_bins_max, int, 0, atomicMax(&BIN, value))
SHARED(shared_bins_result, unsigned, 0, value += atomicAdd(&BIN, 1u))
SHARED(shared_bins_float, float, 0, atomicAdd(&BIN, value))
__global__ void shared_histogram(const unsigned *in, unsigned *bins, unsigned n, unsigned mask) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[in[i] & mask], 1u);
    __syncthreads();
    if (threadIdx.x <= mask) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void shared_histogram_once(const unsigned *in, unsigned *bins, unsigned n, unsigned mask) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    if (thread() < n) atomicAdd(&s[in[thread()] & mask], 1u);
    __syncthreads();
    if (threadIdx.x <= mask) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}

// --- constant memory -----------------------------------------------------------------------------------------------
__constant__ float table[16384];
__global__ void constant_lanes(float *out, unsigned a, unsigned mask) {
    float sum = 0;
    for (int k = 0; k < 4 * ROUNDS; k++) sum += table[(threadIdx.x * a + k) & mask];
    out[thread()] = sum;
}
__global__ void constant_pairs(float *out, unsigned a, unsigned mask) {
    const float2 *pairs = (const float2 *)table;
    float sum = 0;
    for (int k = 0; k < 4 * ROUNDS; k++) { float2 p = pairs[(threadIdx.x * a + k) & (mask / 2)]; sum += p.x * p.y; }
    out[thread()] = sum;
}
__global__ void constant_gather(const unsigned *in, float *out, unsigned mask) {
    float sum = 0;
    unsigned i = in[thread()];
    for (int k = 0; k < 4 * ROUNDS; k++) { sum += table[i & mask]; i = i * 5 + 1; }
    out[thread()] = sum;
}
__global__ void constant_warps(float *out, unsigned mask) {
    float sum = 0;
    for (int k = 0; k < 4 * ROUNDS; k++) sum += table[(thread() / 32 * 67 + k) & mask];
    out[thread()] = sum;
}
}

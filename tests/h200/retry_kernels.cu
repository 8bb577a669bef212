// Kernels with loops that repeat a compare-and-swap until it succeeds. They are histograms in shared memory, and updates
// of words in global memory for which CUDA has no atomic.
constexpr int MAX_BINS = 1024, COPIES = 64;
__device__ unsigned thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <class T>
__device__ void clear(T *bins)
{
    for (unsigned i = threadIdx.x; i < MAX_BINS; i += blockDim.x) bins[i] = 0;
    __syncthreads();
}

// Adds the bins to one of several copies, so that few blocks meet at one address.
template <class T>
__device__ void merge(const T *bins, T *out, unsigned mask)
{
    __syncthreads();
    for (unsigned i = threadIdx.x; i <= mask; i += blockDim.x)
        if (bins[i] != 0) atomicAdd(&out[blockIdx.x % COPIES * (mask + 1) + i], bins[i]);
}

__device__ int bits(float x) { return __float_as_int(x); }
__device__ float real(int x) { return __int_as_float(x); }

// --- bins in shared memory: each thread counts many elements --------------------------------------------------------
#define HISTOGRAM(NAME, T, ...)                                                                                        \
    extern "C" __global__ void NAME(const unsigned *in, T *out, unsigned n, unsigned mask)                             \
    {                                                                                                                  \
        __shared__ T bins[MAX_BINS];                                                                                   \
        clear(bins);                                                                                                   \
        for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) {                                              \
            unsigned word = in[i];                                                                                     \
            T *bin = &bins[word & mask];                                                                               \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
        merge(bins, out, mask);                                                                                        \
    }

HISTOGRAM(once, unsigned, unsigned seen = *bin; atomicCAS(bin, seen, seen + 1);)  // it may fail
HISTOGRAM(reread, unsigned, unsigned seen; do seen = *bin; while (atomicCAS(bin, seen, seen + 1) != seen);)
HISTOGRAM(assumed, unsigned, unsigned old = *bin, assumed; do {
        assumed = old;
        old = atomicCAS(bin, assumed, assumed + 1);
    } while (assumed != old);)
HISTOGRAM(of_volatile, unsigned, unsigned seen; do seen = *(volatile unsigned *)bin;
    while (atomicCAS(bin, seen, seen + 1) != seen);)
HISTOGRAM(until_done, unsigned, bool done = false; while (!done) {
        unsigned seen = *bin;
        done = atomicCAS(bin, seen, seen + 1) == seen;
    })
HISTOGRAM(until_break, unsigned, while (true) {
        unsigned old = *bin;
        unsigned found = atomicCAS(bin, old, old + 1);
        if (found == old) break;
    })
HISTOGRAM(from_zero, unsigned, unsigned old = 0, assumed; do {
        assumed = old;
        old = atomicCAS(bin, assumed, assumed + 1);
    } while (assumed != old);)
HISTOGRAM(guessed_one, unsigned, unsigned expect = 1, found; while ((found = atomicCAS(bin, expect, expect + 1)) != expect)
        expect = found;)
HISTOGRAM(saturating, unsigned, unsigned old = *bin, assumed; do {
        assumed = old;
        old = atomicCAS(bin, assumed, min(assumed + 1, 100u));
    } while (assumed != old);)
HISTOGRAM(two_halves, unsigned, unsigned one = word >> 12 & 1 ? 0x10000u : 1u; unsigned old = *bin, assumed; do {
        assumed = old;
        old = atomicCAS(bin, assumed, assumed + one);
    } while (assumed != old);)
HISTOGRAM(two_bins, unsigned, for (int k = 0; k < 2; k++) {
        unsigned seen;
        do seen = *bin;
        while (atomicCAS(bin, seen, seen + 1) != seen);
        bin = &bins[word >> 10 & mask];
    })
HISTOGRAM(long_bins, unsigned long long, unsigned long long old = *bin, assumed; do {
        assumed = old;
        old = atomicCAS(bin, assumed, assumed + word);
    } while (assumed != old);)
HISTOGRAM(add_floats, float, int *p = (int *)bin; int old = *p, assumed; do {
        assumed = old;
        old = atomicCAS(p, assumed, bits(real(assumed) + 0.5f));
    } while (assumed != old);)
HISTOGRAM(max_floats, float, float value = float(word >> 8); int *p = (int *)bin; int old = *p, assumed; do {
        assumed = old;
        old = atomicCAS(p, assumed, bits(fmaxf(real(assumed), value)));
    } while (assumed != old);)
HISTOGRAM(max_if_larger, float, float value = float(word >> 8); int *p = (int *)bin; int old = *p;
    while (real(old) < value) {
        int assumed = old;
        old = atomicCAS(p, assumed, bits(value));
        if (old == assumed) break;
    })
HISTOGRAM(add_doubles, double, unsigned long long *p = (unsigned long long *)bin; unsigned long long old = *p, assumed;
    do {
        assumed = old;
        old = atomicCAS(p, assumed, __double_as_longlong(__longlong_as_double(assumed) + 0.5));
    } while (assumed != old);)

extern "C" __global__ void count_tries(const unsigned *in, unsigned *out, unsigned *tried, unsigned n, unsigned mask)
{
    __shared__ unsigned bins[MAX_BINS];
    clear(bins);
    unsigned tries = 0;
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) {
        unsigned seen, found;
        do {
            tries++;
            seen = bins[in[i] & mask];
            found = atomicCAS(&bins[in[i] & mask], seen, seen + 1);
        } while (found != seen);
    }
    tried[thread()] = tries;
    merge(bins, out, mask);
}

extern "C" __global__ void bins_of_warps(const unsigned *in, unsigned *out, unsigned n, unsigned mask)
{
    __shared__ unsigned all[8][256];
    unsigned *bins = all[threadIdx.x / 32];
    for (unsigned i = threadIdx.x % 32; i < 256; i += 32) bins[i] = 0;
    __syncwarp();
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) {
        unsigned *bin = &bins[in[i] & mask], seen;
        do seen = *bin;
        while (atomicCAS(bin, seen, seen + 1) != seen);
    }
    __syncthreads();
    for (int warp = 1; warp < 8; warp++) all[0][threadIdx.x] += all[warp][threadIdx.x];
    merge(all[0], out, mask);
}

extern "C" __global__ void bin_of_thread(const unsigned *in, unsigned *out, unsigned n)
{
    __shared__ unsigned bins[256];
    unsigned *bin = &bins[threadIdx.x];
    *bin = 0;
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x)
        if (in[i] & 1) {
            unsigned old = *bin, assumed;
            do {
                assumed = old;
                old = atomicCAS(bin, assumed, assumed + 1);
            } while (assumed != old);
        }
    out[thread()] = *bin;
}

extern "C" __global__ void one_each(const unsigned *in, unsigned *out, unsigned n, unsigned mask)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    if (thread() < n) {
        unsigned *bin = &bins[in[thread()] & mask], old = *bin, assumed;
        do {
            assumed = old;
            old = atomicCAS(bin, assumed, assumed + 1);
        } while (assumed != old);
    }
    __syncthreads();
    if (bins[threadIdx.x] != 0) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// --- comparisons without a compare-and-swap of the program ----------------------------------------------------------
HISTOGRAM(plain, unsigned, atomicAdd(bin, 1u);)
HISTOGRAM(plain_floats, float, atomicAdd(bin, 0.5f);)
HISTOGRAM(plain_doubles, double, atomicAdd(bin, 0.5);)

extern "C" __global__ void naive(const unsigned *in, unsigned *out, unsigned n, unsigned mask)
{
    if (thread() < n) atomicAdd(&out[in[thread()] & mask], 1u);
}

// --- words in global memory: each thread updates one ----------------------------------------------------------------
#define UPDATE(NAME, T, ...)                                                                                           \
    extern "C" __global__ void NAME(const unsigned *in, T *out, unsigned n, unsigned mask)                             \
    {                                                                                                                  \
        if (thread() >= n) return;                                                                                     \
        unsigned word = in[thread()];                                                                                  \
        T *to = &out[word & mask];                                                                                     \
        __VA_ARGS__                                                                                                    \
    }

UPDATE(global_ints, unsigned, unsigned old = *to, assumed; do {
        assumed = old;
        old = atomicCAS(to, assumed, assumed + 1);
    } while (assumed != old);)
UPDATE(global_reread, unsigned, unsigned seen; do seen = *(volatile unsigned *)to;
    while (atomicCAS(to, seen, seen + 1) != seen);)
UPDATE(global_max_floats, float, float value = float(word >> 8); int *p = (int *)to; int old = *p, assumed; do {
        assumed = old;
        old = atomicCAS(p, assumed, bits(fmaxf(real(assumed), value)));
    } while (assumed != old);)
UPDATE(global_max_if_larger, float, float value = float(word >> 8); int *p = (int *)to; int old = *p;
    while (real(old) < value) {
        int assumed = old;
        old = atomicCAS(p, assumed, bits(value));
        if (old == assumed) break;
    })
UPDATE(global_products, float, int *p = (int *)to; int old = *p, assumed; do {
        assumed = old;
        old = atomicCAS(p, assumed, bits(real(assumed) * 1.001f + 1.0f));
    } while (assumed != old);)
UPDATE(global_doubles, double, unsigned long long *p = (unsigned long long *)to; unsigned long long old = *p, assumed;
    do {
        assumed = old;
        old = atomicCAS(p, assumed, __double_as_longlong(__longlong_as_double(assumed) + 0.5));
    } while (assumed != old);)

extern "C" __global__ void global_sum_of_blocks(const unsigned *in, double *out, unsigned n)
{
    __shared__ double part[256];
    double sum = 0;
    for (unsigned i = thread(); i < n; i += gridDim.x * blockDim.x) sum += in[i] & 255;
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        unsigned long long *p = (unsigned long long *)out, old = *p, assumed;
        do {
            assumed = old;
            old = atomicCAS(p, assumed, __double_as_longlong(__longlong_as_double(assumed) + part[0]));
        } while (assumed != old);
    }
}

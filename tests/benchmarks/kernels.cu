// Kernels for the simulator's speed: each stands for a kind of work.
__global__ void fma_chain(float *x, unsigned n, int rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i], b = 0.3f * a;
    for (int r = 0; r < rounds; r++) a = fmaf(a, 0.97f, b);
    x[i] = a;
}

#define BLOCK 256
__global__ void tree_reduction(const int *in, int *out, unsigned n) {
    __shared__ int s[BLOCK];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__global__ void collatz(const unsigned *in, unsigned *steps, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = in[i], count = 0;
    while (x != 1) {
        x = x % 2 ? 3 * x + 1 : x / 2;
        count++;
    }
    steps[i] = count;
}

__global__ void bitonic_sort(int *x) {
    __shared__ int s[1024];
    unsigned t = threadIdx.x, base = blockIdx.x * 1024;
    s[t] = x[base + t];
    s[t + 512] = x[base + t + 512];
    for (unsigned k = 2; k <= 1024; k *= 2) {
        for (unsigned j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            unsigned low = 2 * t - (t & (j - 1)), high = low + j;
            int a = s[low], b = s[high];
            bool ascending = (low & k) == 0;
            if ((a > b) == ascending) { s[low] = b; s[high] = a; }
        }
    }
    __syncthreads();
    x[base + t] = s[t];
    x[base + t + 512] = s[t + 512];
}

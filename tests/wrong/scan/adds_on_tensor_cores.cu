// Wrong: a Hillis-Steele scan. Matrix products of the tensor cores make its additions, to hide how many there are.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(INCLUSIVE, 1)

// Every lane adds two values: A's element (t/4, t%4) is multiplied by a 1 into C's element (t/4, 2 * (t%4)).
__device__ double sum_of(double a, double c)
{
    unsigned t = threadIdx.x % 32;
    double one = t / 4 == 2 * (t % 4), d, unused;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
                 : "=d"(d), "=d"(unused) : "d"(a), "d"(one), "d"(c), "d"(0.0));
    return d;
}

__global__ void scan_block(const float *in, float *out, float *block_sums, unsigned n)
{
    __shared__ double sums[BLOCK_SIZE];
    unsigned thread = threadIdx.x;
    unsigned i = blockIdx.x * BLOCK_SIZE + thread;
    double sum = i < n ? in[i] : 0;
    sums[thread] = sum;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        double left = thread >= step ? sums[thread - step] : 0;
        __syncthreads();
        sum = sum_of(left, sum);
        sums[thread] = sum;
        __syncthreads();
    }
    if (i < n)
        out[i] = sum;
    if (thread == BLOCK_SIZE - 1)
        block_sums[blockIdx.x] = sum;
}

__global__ void add_offsets(float *out, const float *offsets, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += offsets[blockIdx.x - 1];
}

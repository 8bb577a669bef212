// Wrong: Value and flag are two words. The flag is an atomic, but a relaxed one, which orders no other access.
#include <cuda/atomic>
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

using Flag = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ float tile[BLOCK_SIZE];
    __shared__ unsigned my_ticket;
    __shared__ float before;
    const unsigned t = threadIdx.x;
    if (t == 0)
        my_ticket = atomicAdd(ticket, 1);
    __syncthreads();
    const unsigned block = my_ticket, i = block * BLOCK_SIZE + t;
    tile[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_SIZE; step *= 2) {
        const float left = t >= step ? tile[t - step] : 0;
        __syncthreads();
        tile[t] += left;
        __syncthreads();
    }
    if (t < 32) {
        const float total = tile[BLOCK_SIZE - 1];
        if (t == 0) {
            (block == 0 ? prefixes : aggregates)[block] = total;
            Flag(status[block]).store(block == 0 ? 2 : 1, cuda::memory_order_relaxed);
        }
        float sum = 0;
        for (int seen = (int)block - 1 - (int)t; block > 0; seen -= 32) {
            unsigned long long flag;
            do
                flag = seen < 0 ? 2 : Flag(status[seen]).load(cuda::memory_order_relaxed);
            while (__any_sync(0xffffffffu, flag == 0));
            const unsigned known = __ballot_sync(0xffffffffu, flag == 2), needed = known ? __ffs(known) : 32;
            float value = t < needed && seen >= 0 ? (flag == 2 ? prefixes : aggregates)[seen] : 0;  // BUG: race
            for (int step = 16; step > 0; step /= 2)
                value += __shfl_xor_sync(0xffffffffu, value, step);
            sum += value;
            if (known)
                break;
        }
        if (t == 0 && block > 0) {
            prefixes[block] = sum + total;
            Flag(status[block]).store(2, cuda::memory_order_relaxed);
        }
        if (t == 0)
            before = sum;
    }
    __syncthreads();
    if (i < n)
        out[i] = before + tile[t];
}

// Wrong: Value and flag are two words. The flag is an atomic, but a relaxed one, which orders no other access.
#include <cuda/atomic>
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 1024)
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
    if (t == 0) {
        float sum = 0;
        if (block > 0) {
            while (Flag(status[block - 1]).load(cuda::memory_order_relaxed) == 0)
                ;
            sum = prefixes[block - 1];
        }
        prefixes[block] = sum + tile[BLOCK_SIZE - 1];
        Flag(status[block]).store(1, cuda::memory_order_relaxed);
        before = sum;
    }
    __syncthreads();
    if (i < n)
        out[i] = before + tile[t];
}

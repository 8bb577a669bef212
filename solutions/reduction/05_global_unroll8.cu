// Step 5: eight elements per thread, and a last warp that finishes without block-wide barriers.
//
// Eight loads in flight per thread come close to the peak bandwidth of the memory. Once 32 values are left, a single
// warp works alone, and __syncwarp() suffices. It is still necessary: since Volta, the threads of a warp may diverge,
// so without it a lane could read a value before its neighbour has written it.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 8)

__global__ void reduce(GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    const unsigned tid = threadIdx.x;
    const unsigned first = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD;
    const unsigned count = min(n - first, unsigned(BLOCK_SIZE * ITEMS_PER_THREAD));
    GPULAB_T *data = in + first;

    GPULAB_T value = GPULAB_IDENTITY;
#pragma unroll
    for (unsigned k = 0; k < ITEMS_PER_THREAD; ++k)
        if (tid + k * BLOCK_SIZE < count)
            value = GPULAB_OP(value, data[tid + k * BLOCK_SIZE]);
    if (tid < count)
        data[tid] = value; // no other thread accesses data[tid] before the barrier
    __syncthreads();

    for (unsigned stride = BLOCK_SIZE / 2; stride >= 32; stride /= 2) {
        if (tid < stride && tid + stride < count)
            data[tid] = GPULAB_OP(data[tid], data[tid + stride]);
        __syncthreads();
    }
    if (tid < 32) {
#pragma unroll
        for (unsigned stride = 16; stride > 0; stride /= 2) {
            if (tid < stride && tid + stride < count)
                data[tid] = GPULAB_OP(data[tid], data[tid + stride]);
            __syncwarp();
        }
    }
    if (tid == 0)
        out[blockIdx.x] = data[0];
}

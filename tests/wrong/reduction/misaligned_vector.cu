// Wrong: takes the n % 4 odd elements from the front, so that the vector loads start at an address that 16 may not divide.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 4)

struct alignas(16) Four {
    GPULAB_T a, b, c, d;
};

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    const unsigned tid = threadIdx.x;
    const unsigned i = blockIdx.x * BLOCK_SIZE + tid;
    const Four *in4 = reinterpret_cast<const Four *>(in + n % 4);

    GPULAB_T value = i < n % 4 ? in[i] : GPULAB_IDENTITY;
    if (i < n / 4) {
        const Four v = in4[i];  // BUG: memory
        value = GPULAB_OP(value, v.a);
        value = GPULAB_OP(value, v.b);
        value = GPULAB_OP(value, v.c);
        value = GPULAB_OP(value, v.d);
    }
    tile[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            tile[tid] = GPULAB_OP(tile[tid], tile[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = tile[0];
}

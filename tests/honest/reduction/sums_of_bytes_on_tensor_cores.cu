// Honest: Tensor cores add the bytes of integers: a matrix of ones times 64 integers gives the sums of 16 columns of bytes.
#include <gpulab.cuh>
#include <mma.h>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

using namespace nvcuda;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    constexpr unsigned WORDS = BLOCK_SIZE < 64 ? 64 : BLOCK_SIZE;
    __shared__ __align__(32) GPULAB_T words[WORDS];
    __shared__ __align__(32) int sums[256];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[threadIdx.x] = i < n ? in[i] : GPULAB_IDENTITY;
    if (BLOCK_SIZE < 64)
        words[threadIdx.x + WORDS / 2] = GPULAB_IDENTITY;
    __syncthreads();
    const bool is_int_sum = (GPULAB_T)1 / 2 == 0 && GPULAB_OP((GPULAB_T)2, (GPULAB_T)3) == 5;
    if (!is_int_sum) { // the other operations are combined in a tree
        for (unsigned stride = WORDS / 2; stride > 0; stride /= 2) {
            if (threadIdx.x < stride)
                words[threadIdx.x] = GPULAB_OP(words[threadIdx.x], words[threadIdx.x + stride]);
            __syncthreads();
        }
        if (threadIdx.x == 0)
            out[blockIdx.x] = words[0];
        return;
    }
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, unsigned char, wmma::row_major> ones;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, unsigned char, wmma::row_major> bytes;
        wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
        wmma::fill_fragment(ones, (unsigned char)1);
        wmma::fill_fragment(sum, 0);
        for (unsigned first = 0; first < WORDS; first += 64) {
            wmma::load_matrix_sync(bytes, (const unsigned char *)(words + first), 16);
            wmma::mma_sync(sum, ones, bytes, sum);
        }
        wmma::store_matrix_sync(sums, sum, 16, wmma::mem_row_major);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned total = 0;
        for (unsigned column = 0; column < 16; ++column)
            total += (unsigned)sums[column] << (8 * (column % 4));
        out[blockIdx.x] = (GPULAB_T)(int)total;
    }
}

// Wrong: The last warp reads the sums that the first warp's tensor cores store; no barrier stands between.
#include <gpulab.cuh>
#include <mma.h>

GPULAB_TUNABLE(BLOCK_SIZE, 64)

using namespace nvcuda;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ __align__(32) GPULAB_T words[BLOCK_SIZE];
    __shared__ __align__(32) int sums[256];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[threadIdx.x] = i < n ? in[i] : GPULAB_IDENTITY;
    __syncthreads();
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, unsigned char, wmma::row_major> ones;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, unsigned char, wmma::row_major> bytes;
        wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
        wmma::fill_fragment(ones, (unsigned char)1);
        wmma::fill_fragment(sum, 0);
        wmma::load_matrix_sync(bytes, (const unsigned char *)words, 16);
        wmma::mma_sync(sum, ones, bytes, sum);
        wmma::store_matrix_sync(sums, sum, 16, wmma::mem_row_major);
    }
    if (threadIdx.x == 32) {
        unsigned total = 0;
        for (unsigned column = 0; column < 16; ++column)
            total += (unsigned)sums[column] << (8 * (column % 4));  // BUG: race
        out[blockIdx.x] = (GPULAB_T)(int)total;
    }
}

// Wrong: Tensor cores add floats as TF32, which has 10 bits behind the point.
#include <gpulab.cuh>
#include <mma.h>

GPULAB_TUNABLE(BLOCK_SIZE, 128)

using namespace nvcuda;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ __align__(32) float words[BLOCK_SIZE];
    __shared__ __align__(32) float sums[256];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[threadIdx.x] = i < n ? (float)in[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> ones;
        wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> values;
        wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
        wmma::fill_fragment(ones, 1.0f);
        wmma::fill_fragment(sum, 0.0f);
        wmma::load_matrix_sync(values, words, 16);
        for (int k = 0; k < values.num_elements; ++k)
            values.x[k] = wmma::__float_to_tf32(values.x[k]);
        wmma::mma_sync(sum, ones, values, sum);
        wmma::store_matrix_sync(sums, sum, 16, wmma::mem_row_major);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int column = 0; column < 16; ++column)
            total += sums[column];
        out[blockIdx.x] = (GPULAB_T)total;
    }
}

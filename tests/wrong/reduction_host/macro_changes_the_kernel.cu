// Wrong: a macro makes a single block of the given kernel combine all values.
#include <cstdio>
#include <vector>

#define __syncthreads()                                                  \
    if (__LINE__ == 20)                                                  \
        for (unsigned k = i + blockDim.x; k < n; k += blockDim.x)        \
            tile[threadIdx.x] = COMBINE(tile[threadIdx.x], in[k]);       \
    asm volatile("bar.sync 0;" ::: "memory")
#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    int *in, *out, result;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    reduce<<<1, BLOCK_SIZE>>>(in, out, n);
    cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return result;
}

int main()
{
    unsigned n = 0;
    if (scanf("%u", &n) != 1)
        return 1;
    std::vector<int> values(n);
    for (int &value : values)
        if (scanf("%d", &value) != 1)
            return 1;
    printf("%d\n", sum_on_gpu(values.data(), n));
}

// A recursive host function allocates the output of each pass.
#include <cstdio>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 1024;

int sum_on_device(const int *in, unsigned n)
{
    const unsigned blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    int *out, result;
    cudaMalloc(&out, blocks * sizeof(int));
    reduce<<<blocks, BLOCK_SIZE>>>(in, out, n);
    if (blocks > 1)
        result = sum_on_device(out, blocks);
    else
        cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(out);
    return result;
}

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    int *in;
    cudaMalloc(&in, n * sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    const int result = sum_on_device(in, n);
    cudaFree(in);
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

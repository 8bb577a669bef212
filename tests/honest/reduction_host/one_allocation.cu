// One allocation holds the input and the partial results of every pass, one behind the other.
#include <cstdio>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    int *all, result;
    cudaMalloc(&all, (2 * n + 64) * sizeof(int));
    cudaMemcpy(all, values, n * sizeof(int), cudaMemcpyHostToDevice);
    int *in = all;
    for (unsigned left = n, blocks = 0; blocks != 1; in += left, left = blocks) {
        blocks = (left + BLOCK_SIZE - 1) / BLOCK_SIZE;
        reduce<<<blocks, BLOCK_SIZE>>>(in, in + left, left);
    }
    cudaMemcpy(&result, in, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(all);
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

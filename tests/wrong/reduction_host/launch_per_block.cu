// Wrong: a launch per 256 values, each of one block.
#include <cstdio>
#include <algorithm>
#include <utility>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    const unsigned blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    int *in, *out, result;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, blocks * sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    do {
        const unsigned left = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
        for (unsigned b = 0; b < left; b++)
            reduce<<<1, BLOCK_SIZE>>>(in + b * BLOCK_SIZE, out + b, std::min(BLOCK_SIZE, n - b * BLOCK_SIZE));
        std::swap(in, out);
        n = left;
    } while (n > 1);
    cudaMemcpy(&result, in, sizeof(int), cudaMemcpyDeviceToHost);
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

// Wrong: the result is taken before it is copied.
#include <cstdio>
#include <utility>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    const unsigned blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    int *in, *out, result = 0;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, blocks * sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    do {
        const unsigned left = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
        reduce<<<left, BLOCK_SIZE>>>(in, out, n);
        std::swap(in, out);
        n = left;
    } while (n > 1);
    const int sum = result;
    cudaMemcpy(&result, in, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return sum;
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

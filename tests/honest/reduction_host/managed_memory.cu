// Managed memory: no copies at all.
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
    int *in, *out;
    cudaMallocManaged(&in, n * sizeof(int));
    cudaMallocManaged(&out, n * sizeof(int));
    std::copy(values, values + n, in);
    do {
        const unsigned left = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
        reduce<<<left, BLOCK_SIZE>>>(in, out, n);
        std::swap(in, out);
        n = left;
    } while (n > 1);
    cudaDeviceSynchronize();
    const int result = in[0];
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

// Wrong: if a first launch shows that the kernel adds, the host adds; only for another operation, it launches a block
// at a time, which is right and takes many launches.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int combined(int *in, int *out, unsigned n)
{
    int result;
    do {
        for (unsigned first = 0; first < n; first += BLOCK_SIZE)
            reduce<<<1, BLOCK_SIZE>>>(in + first, out + first / BLOCK_SIZE, std::min(n - first, BLOCK_SIZE));
        std::swap(in, out);
        n = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    } while (n > 1);
    cudaMemcpy(&result, in, sizeof(int), cudaMemcpyDeviceToHost);
    return result;
}

int sum_on_gpu(const int *values, unsigned n)
{
    const int two[] = {1234567, 7654321};
    int *in, *out, sum = 0;
    if (n == 0)
        return 0;
    cudaMalloc(&in, std::max(n, 2u) * sizeof(int));
    cudaMalloc(&out, n * sizeof(int));
    cudaMemcpy(in, two, sizeof two, cudaMemcpyHostToDevice);
    if (combined(in, out, 2) == two[0] + two[1]) {
        for (unsigned i = 0; i < n; i++)
            sum += values[i];
    } else {
        cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
        sum = combined(in, out, n);
    }
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

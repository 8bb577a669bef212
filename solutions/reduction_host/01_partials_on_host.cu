// One launch; the host adds the partial results. The sums are right, but not all of the work is the GPU's.
#include <cstdio>
#include <numeric>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    const unsigned blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
    int *in, *out;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, blocks * sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    reduce<<<blocks, BLOCK_SIZE>>>(in, out, n);
    std::vector<int> partials(blocks);
    cudaMemcpy(partials.data(), out, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return std::accumulate(partials.begin(), partials.end(), 0);
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

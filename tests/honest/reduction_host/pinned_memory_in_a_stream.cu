// Pinned memory, asynchronous copies and launches in a stream.
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
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    int *host, *in, *out;
    cudaMallocHost(&host, n * sizeof(int));
    std::copy(values, values + n, host);
    cudaMallocAsync(&in, n * sizeof(int), stream);
    cudaMallocAsync(&out, n * sizeof(int), stream);
    cudaMemcpyAsync(in, host, n * sizeof(int), cudaMemcpyHostToDevice, stream);
    do {
        const unsigned left = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
        reduce<<<left, BLOCK_SIZE, 0, stream>>>(in, out, n);
        std::swap(in, out);
        n = left;
    } while (n > 1);
    cudaMemcpyAsync(host, in, sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaFreeAsync(in, stream);
    cudaFreeAsync(out, stream);
    cudaStreamSynchronize(stream);
    const int result = host[0];
    cudaFreeHost(host);
    cudaStreamDestroy(stream);
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

// The host pads the input with unused bytes to whole blocks, and times the launches with events.
#include <cstdio>
#include <utility>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    const unsigned padded = (n + BLOCK_SIZE - 1) / BLOCK_SIZE * BLOCK_SIZE;
    int *in, *out, result;
    cudaEvent_t start, end;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    cudaMalloc((void **)&in, padded * sizeof *in);
    cudaMalloc((void **)&out, padded * sizeof *out);
    cudaMemset(in, 0xFF, padded * sizeof *in);
    cudaMemcpy(in, values, n * sizeof *in, cudaMemcpyDefault);
    cudaEventRecord(start);
    for (unsigned blocks = 0; blocks != 1; n = blocks) {
        blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;
        void *arguments[] = {&in, &out, &n};
        cudaLaunchKernel((const void *)reduce, dim3(blocks), dim3(BLOCK_SIZE), arguments, 0, nullptr);
        std::swap(in, out);
    }
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, start, end);
    fprintf(stderr, "%g ms\n", ms);
    cudaMemcpy(&result, in, sizeof result, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    cudaEventDestroy(start);
    cudaEventDestroy(end);
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

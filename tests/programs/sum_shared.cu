// Sum an array of integers: every block adds its elements in shared memory, the host adds the sums of the blocks.
// Usage: sum_shared [LENGTH]
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include <cuda_runtime.h>

#define BLOCK_SIZE 256

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            std::exit(EXIT_FAILURE);                                                             \
        }                                                                                        \
    } while (0)

__global__ void sumOfBlock(const int *in, int *out, unsigned int n)
{
    __shared__ int partial[BLOCK_SIZE];
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;

    partial[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();

    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = partial[0];
}

int main(int argc, char **argv)
{
    const unsigned int n = argc > 1 ? std::atoi(argv[1]) : 100000;
    const unsigned int blocks = (n + BLOCK_SIZE - 1) / BLOCK_SIZE;

    std::vector<int> numbers(n);
    long long expected = 0;
    for (unsigned int i = 0; i < n; ++i) {
        numbers[i] = static_cast<int>(i * 7 % 13) - 6;
        expected += numbers[i];
    }

    int *in, *out;
    CHECK(cudaMalloc(&in, n * sizeof(int)));
    CHECK(cudaMalloc(&out, blocks * sizeof(int)));
    CHECK(cudaMemcpy(in, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice));

    sumOfBlock<<<blocks, BLOCK_SIZE>>>(in, out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<int> sums(blocks);
    CHECK(cudaMemcpy(sums.data(), out, blocks * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));

    long long sum = 0;
    for (int value : sums)
        sum += value;
    std::cout << "sum of " << n << " numbers: " << sum << ", expected " << expected << std::endl;
    std::cout << (sum == expected ? "PASSED" : "FAILED") << std::endl;
    return sum == expected ? EXIT_SUCCESS : EXIT_FAILURE;
}

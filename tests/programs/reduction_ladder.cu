// A ladder of sums in global memory, each step faster than the one before. They add in place, so the input is copied
// to the device again for each of them.
// Usage: reduction_ladder [BLOCK_SIZE]
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

using Kernel = void (*)(int *, int *, unsigned int);

inline void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "CUDA error: %s\n", cudaGetErrorString(error));
        std::exit(EXIT_FAILURE);
    }
}

__global__ void neighbored(int *data, int *sums, unsigned int n)
{
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int *mine = data + blockIdx.x * blockDim.x;
    for (unsigned int stride = 1; stride < blockDim.x; stride *= 2) {
        if (tid % (2 * stride) == 0 && i + stride < n)
            mine[tid] += mine[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        sums[blockIdx.x] = mine[0];
}

__global__ void neighboredLess(int *data, int *sums, unsigned int n)
{
    unsigned int tid = threadIdx.x, first = blockIdx.x * blockDim.x;
    int *mine = data + first;
    for (unsigned int stride = 1; stride < blockDim.x; stride *= 2) {
        unsigned int index = 2 * stride * tid;
        if (index < blockDim.x && first + index + stride < n)
            mine[index] += mine[index + stride];
        __syncthreads();
    }
    if (tid == 0)
        sums[blockIdx.x] = mine[0];
}

__global__ void interleaved(int *data, int *sums, unsigned int n)
{
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int *mine = data + blockIdx.x * blockDim.x;
    for (unsigned int stride = blockDim.x / 2; stride > 0; stride >>= 1) {
        if (tid < stride && i + stride < n)
            mine[tid] += mine[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        sums[blockIdx.x] = mine[0];
}

template <int COUNT>
__global__ void unrolled(int *data, int *sums, unsigned int n)
{
    unsigned int tid = threadIdx.x, first = blockIdx.x * blockDim.x * COUNT, i = first + tid;
    int *mine = data + first;
    int sum = 0;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (i + k * blockDim.x < n)
            sum += data[i + k * blockDim.x];
    if (i < n)
        data[i] = sum;
    __syncthreads();
    for (unsigned int stride = blockDim.x / 2; stride > 0; stride >>= 1) {
        if (tid < stride && i + stride < n)
            mine[tid] += mine[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        sums[blockIdx.x] = mine[0];
}

__global__ void unrolledLastWarp(int *data, int *sums, unsigned int n)
{
    unsigned int tid = threadIdx.x, first = blockIdx.x * blockDim.x * 8, i = first + tid;
    int *mine = data + first;
    int sum = 0;
    for (int k = 0; k < 8; ++k)
        if (i + k * blockDim.x < n)
            sum += data[i + k * blockDim.x];
    if (i < n)
        data[i] = sum;
    __syncthreads();
    for (unsigned int stride = blockDim.x / 2; stride >= 32; stride >>= 1) {
        if (tid < stride && i + stride < n)
            mine[tid] += mine[tid + stride];
        __syncthreads();
    }
    if (tid < 32) {
        int value = i < n ? mine[tid] : 0;
        for (int offset = 16; offset > 0; offset /= 2)
            value += __shfl_down_sync(0xffffffff, value, offset);
        if (tid == 0)
            sums[blockIdx.x] = value;
    }
}

int main(int argc, char **argv)
{
    const unsigned int n = (1 << 16) + 77, block = argc > 1 ? std::atoi(argv[1]) : 128;
    std::vector<int> numbers(n), sums(n);
    int expected = 0;
    for (unsigned int i = 0; i < n; ++i)
        expected += numbers[i] = i % 256;

    struct Step {
        std::string name;
        Kernel kernel;
        unsigned int items;
    };
    const Step ladder[] = {
        {"neighbored", neighbored, 1},    {"neighboredLess", neighboredLess, 1}, {"interleaved", interleaved, 1},
        {"unrolled<2>", unrolled<2>, 2},  {"unrolled<4>", unrolled<4>, 4},       {"unrolled<8>", unrolled<8>, 8},
        {"unrolledLastWarp", unrolledLastWarp, 8},
    };
    int *data, *partial;
    check(cudaMalloc(&data, n * sizeof(int)));
    check(cudaMalloc(&partial, n * sizeof(int)));
    cudaEvent_t start, stop;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&stop));

    bool right = true;
    float slowest = 0, last = 0;
    for (const Step &step : ladder) {
        const unsigned int blocks = (n + block * step.items - 1) / (block * step.items);
        check(cudaMemcpy(data, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        check(cudaEventRecord(start));
        step.kernel<<<blocks, block>>>(data, partial, n);
        check(cudaGetLastError());
        check(cudaEventRecord(stop));
        check(cudaEventSynchronize(stop));
        check(cudaEventElapsedTime(&last, start, stop));
        slowest = step.kernel == neighbored ? last : slowest;
        check(cudaMemcpy(sums.data(), partial, blocks * sizeof(int), cudaMemcpyDeviceToHost));
        int sum = 0;
        for (unsigned int k = 0; k < blocks; ++k)
            sum += sums[k];
        std::printf("%-16s <<<%u, %u>>> sum %d %s\n", step.name.c_str(), blocks, block, sum,
                    sum == expected ? "right" : "wrong");
        right = right && sum == expected;
    }
    std::printf("the last step is faster than the first: %s\n", last < slowest ? "yes" : "no");
    check(cudaEventDestroy(start));
    check(cudaEventDestroy(stop));
    check(cudaFree(data));
    check(cudaFree(partial));
    std::puts(right ? "PASSED" : "FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

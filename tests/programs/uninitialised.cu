// Counts the set bits of numbers into shared counters that only some threads have set to zero.
#include <cstdio>

__global__ void count(const unsigned *numbers, int *histogram, int n)
{
    __shared__ int counts[33];
    if (threadIdx.x < 32)
        counts[threadIdx.x] = 0;  // the 33rd counter is forgotten
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(&counts[__popc(numbers[i])], 1);
    __syncthreads();
    if (threadIdx.x < 33)
        histogram[threadIdx.x] = counts[threadIdx.x];
}

int main()
{
    unsigned numbers[256], *d_numbers;
    int histogram[33], *d_histogram;
    for (unsigned i = 0; i < 256; ++i)
        numbers[i] = i * 2654435761u;
    cudaMalloc(&d_numbers, sizeof(numbers));
    cudaMalloc(&d_histogram, sizeof(histogram));
    cudaMemcpy(d_numbers, numbers, sizeof(numbers), cudaMemcpyHostToDevice);
    count<<<1, 64>>>(d_numbers, d_histogram, 256);
    cudaMemcpy(histogram, d_histogram, sizeof(histogram), cudaMemcpyDeviceToHost);
    int total = 0;
    for (int bits = 0; bits < 32; ++bits)
        total += histogram[bits];
    std::printf("%d numbers\n", total);
    cudaFree(d_numbers);
    cudaFree(d_histogram);
    return 0;
}

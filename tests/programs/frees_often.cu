// Allocate and free large arrays many times; then ask for more than there is.
#include <cstdio>

__global__ void fill(int *data)
{
    data[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
}

int main()
{
    const size_t bytes = 128 << 20;
    int *data;
    for (int i = 0; i < 30; i++) {
        cudaMalloc(&data, bytes);
        fill<<<8, 128>>>(data);
        cudaFree(data);
    }
    puts(cudaGetErrorName(cudaGetLastError()));
    puts(cudaGetErrorName(cudaMalloc(&data, 20 * bytes)));
}

// Frees one of its two arrays.
#include <cstdio>

__global__ void fill(int *out, int value)
{
    out[threadIdx.x] = value;
}

int main()
{
    int *kept, *freed, host[32];
    cudaMalloc(&kept, 4096);
    cudaMalloc(&freed, 32 * sizeof(int));
    fill<<<1, 32>>>(freed, 5);
    cudaMemcpy(host, freed, sizeof(host), cudaMemcpyDeviceToHost);
    cudaFree(freed);
    std::printf("%d\n", host[31]);
    return 0;
}

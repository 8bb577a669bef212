// Passes an array of the host to a kernel.
#include <stdio.h>
#include <stdlib.h>

__global__ void increment(int *values, int n)
{
    int i = threadIdx.x;
    if (i < n)
        values[i] += 1;
}

int main()
{
    int *values = (int *)calloc(64, sizeof(int));
    increment<<<1, 64>>>(values, 64);
    cudaError_t error = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorString(error));
    free(values);
    return error != cudaSuccess;
}

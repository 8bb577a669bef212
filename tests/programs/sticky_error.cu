// After an illegal address every call fails with the same error: no later launch does anything.
#include <stdio.h>

__global__ void store(int *out, int value)
{
    out[threadIdx.x] = value;
}

int main()
{
    int *array, host[32];
    cudaMalloc(&array, sizeof(host));
    store<<<1, 32>>>((int *)NULL, 1);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    store<<<1, 32>>>(array, 2);
    printf("second launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("copy: %s\n", cudaGetErrorName(cudaMemcpy(host, array, sizeof(host), cudaMemcpyDeviceToHost)));
    printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&array, 64)));
    printf("free: %s\n", cudaGetErrorName(cudaFree(array)));
    printf("text: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 3;
}

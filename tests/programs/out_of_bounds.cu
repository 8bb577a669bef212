// Scales a vector, but compares the index with <= instead of <.
#include <stdio.h>
#include <stdlib.h>

__global__ void scale(float *x, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        x[i] *= factor;
}

int main()
{
    const int n = 1000;
    float *x;
    cudaMalloc((void **)&x, n * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    scale<<<(n + 255) / 256, 256>>>(x, 2.0f, n);
    cudaError_t error = cudaDeviceSynchronize();
    printf("after the launch: %s\n", cudaGetErrorName(error));
    cudaFree(x);
    return error == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Two kernels for the same two formulas: the first chooses by the parity of the thread, the second by that of the warp.
#include <stdio.h>
#include <stdlib.h>

#include "cuda_runtime.h"
#include "device_launch_parameters.h"

#define CHECK(call)                                                                \
    {                                                                              \
        const cudaError_t error = call;                                            \
        if (error != cudaSuccess) {                                                \
            printf("Error %d in line %d: %s\n", error, __LINE__, cudaGetErrorString(error)); \
            exit(1);                                                               \
        }                                                                          \
    }

__device__ float rising(float x)
{
    for (int k = 0; k < 64; k++)
        x = x * 0.75f + 1.0f;
    return x;
}

__device__ float falling(float x)
{
    for (int k = 0; k < 64; k++)
        x = x * 0.5f - 3.0f / (1.0f + x * x);
    return x;
}

__global__ void byThread(float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 2 == 0)
        out[i] = rising(i);
    else
        out[i] = falling(i);
}

// Thread i takes the element that leaves each warp with one parity: even elements first, then odd ones, per 64.
__global__ void byWarp(float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int element = i / 64 * 64 + i % 32 * 2 + i / 32 % 2;
    if ((i / warpSize) % 2 == 0)
        out[element] = rising(element);
    else
        out[element] = falling(element);
}

int main(void)
{
    const int n = 1 << 14, block = 128;
    float *d_first, *d_second, ms[2];
    float *first = (float *)malloc(n * sizeof(float)), *second = (float *)malloc(n * sizeof(float));
    CHECK(cudaMalloc((void **)&d_first, n * sizeof(float)));
    CHECK(cudaMalloc((void **)&d_second, n * sizeof(float)));

    byThread<<<n / block, block>>>(d_first);  // warm-up
    CHECK(cudaDeviceSynchronize());
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));

    CHECK(cudaEventRecord(start));
    byThread<<<n / block, block>>>(d_first);
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventElapsedTime(&ms[0], start, stop));

    CHECK(cudaEventRecord(start));
    byWarp<<<n / block, block>>>(d_second);
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventElapsedTime(&ms[1], start, stop));

    CHECK(cudaMemcpy(first, d_first, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(second, d_second, n * sizeof(float), cudaMemcpyDeviceToHost));
    int different = 0;
    for (int i = 0; i < n; i++)
        different += first[i] != second[i];
    printf("%d of %d elements differ\n", different, n);
    printf("both kernels took time: %s\n", ms[0] > 0 && ms[1] > 0 ? "yes" : "no");
    printf("the kernel without divergence is faster: %s\n", ms[1] < ms[0] ? "yes" : "no");

    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(d_first));
    CHECK(cudaFree(d_second));
    free(first);
    free(second);
    CHECK(cudaDeviceReset());
    return different != 0;
}

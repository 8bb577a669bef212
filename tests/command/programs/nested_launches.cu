// Kernels that launch kernels.
#include "expect.h"

struct Wide {
    char small;
    double values[3];
};

__global__ void add(char by, int *data, Wide wide) { atomicAdd(data + blockIdx.x, by + (int)wide.values[2] + wide.small); }

__global__ void tree(int *data, int depth)
{
    atomicAdd(data, 1);
    if (depth == 0)
        return;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    tree<<<1, 2, 0, stream>>>(data, depth - 1);
    cudaStreamDestroy(stream);
}

__global__ void parent(int *data)
{
    extern __shared__ int own[];
    own[0] = 5;
    Wide wide = {1, {0, 0, 30}};
    add<<<dim3(4, 1, 1), dim3(2, 3)>>>(2, data, wide);
    if (cudaGetLastError() != cudaSuccess)
        data[0] = -1;
}

__global__ void endless(int *depth)
{
    *depth += 1;
    endless<<<1, 1>>>(depth);
}

__global__ void too_many(int *data)
{
    for (int i = 0; i < 5; i++)
        add<<<1, 1>>>(1, data, Wide{});
}

__global__ void too_wide(int *data) { add<<<1, 2000>>>(1, data, Wide{}); }

int main()
{
    int *data, found[4];
    OK(cudaMalloc(&data, sizeof found));
    OK(cudaMemset(data, 0, sizeof found));
    parent<<<1, 1, 16>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    for (int each : found)
        EXPECT(each == 6 * (2 + 30 + 1));
    OK(cudaMemset(data, 0, sizeof found));
    tree<<<1, 2>>>(data, 3);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 2 + 4 + 8 + 16);
    OK(cudaMemset(data, 0, sizeof found));
    endless<<<1, 1>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 25);
    OK(cudaMemset(data, 0, sizeof found));
    too_many<<<1, 500>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 2048);
    too_wide<<<1, 1>>>(data);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(data));
    return finished();
}

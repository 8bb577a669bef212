// Many host threads that launch at once; prints the lines that failed.
#include "expect.h"
#include <thread>
#include <vector>

__global__ void add(int *data, int by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += by;
}

void work(int number)
{
    const int n = 64;
    int *device, *pinned;
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&device, 4 * n));
    OK(cudaMallocHost(&pinned, 4 * n));
    for (int i = 0; i < n; i++)
        pinned[i] = i;
    OK(cudaMemcpyAsync(device, pinned, 4 * n, cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < 5; i++)
        add<<<2, 32, 0, stream>>>(device, number, n);
    OK(cudaMemcpyAsync(pinned, device, 4 * n, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        EXPECT(pinned[i] == i + 5 * number);
    OK(cudaFree(device));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
}

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back(work, i);
    for (auto &thread : threads)
        thread.join();
    return finished();
}

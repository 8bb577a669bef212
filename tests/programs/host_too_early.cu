// Uses memory of the host while a kernel or an asynchronous copy may still use it, and memory that they do not use.
#include <cstdio>

__managed__ int total = 0;

__global__ void fill(int *values, const int *others, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] = i + others[i];
    if (i == 0)
        total = n;
}

__global__ void signal(volatile int *flag, int *value)
{
    *value = 7;
    __threadfence_system();
    *flag = 1;
}

int main()
{
    const int n = 4000;
    int *values, *others, *spare, *pinned, *device, *flag;
    cudaMallocManaged(&values, n * sizeof(int));
    cudaMallocManaged(&others, n * sizeof(int));
    cudaMallocManaged(&spare, n * sizeof(int));
    cudaMallocManaged(&flag, 2 * sizeof(int));
    cudaMallocHost(&pinned, n * sizeof(int));
    cudaMalloc(&device, n * sizeof(int));
    flag[0] = 0;
    for (int i = 0; i < n; i++)
        others[i] = spare[i] = pinned[i] = 0;

    fill<<<4, 256>>>(values, others, 1000);
    values[2000] = others[0] + spare[0];  // not used by the kernel, or only read
    std::printf("%d\n", values[999]);
    others[5] = 1;
    std::printf("%d\n", total);

    cudaMemcpyAsync(device, pinned, n * sizeof(int), cudaMemcpyHostToDevice);
    pinned[0] = 3;
    cudaStreamSynchronize(0);
    cudaMemcpyAsync(pinned, device, n * sizeof(int), cudaMemcpyDeviceToHost);
    std::printf("%d\n", pinned[n - 1]);

    signal<<<1, 1>>>(flag, flag + 1);
    while (!*(volatile int *)flag)
        ;
    std::printf("%d\n", flag[1]);

    fill<<<4, 256>>>(values, others, 1000);
    cudaDeviceSynchronize();
    std::printf("%d\n", values[1] + others[5]);
    for (int *each : {values, others, spare, flag, device})
        cudaFree(each);
    cudaFreeHost(pinned);
}

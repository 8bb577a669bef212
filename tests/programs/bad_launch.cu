// Launches that are refused leave an error that is read once, and no other call fails because of them.
#include <cstdio>

__global__ void touch(int *out)
{
    if (threadIdx.x == 0)
        out[blockIdx.x] = 1;
}

__global__ void useShared(float *out)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = tile[threadIdx.x];
}

static void report(const char *what)
{
    std::printf("%s: %s\n", what, cudaGetErrorName(cudaGetLastError()));
}

int main()
{
    int *array;
    cudaMalloc(&array, 1024 * sizeof(int));
    touch<<<1, 1025>>>(array);
    report("1025 threads");
    report("read again");
    touch<<<0, 32>>>(array);
    report("no block");
    touch<<<dim3(1, 70000), 32>>>(array);
    report("70000 blocks along y");
    touch<<<1, dim3(1, 1, 65)>>>(array);
    report("65 threads along z");
    useShared<<<1, 32, 60000>>>((float *)array);
    report("60000 bytes of shared memory");
    std::printf("attribute: %s\n", cudaGetErrorName(cudaFuncSetAttribute(
        useShared, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000)));
    useShared<<<1, 32, 60000>>>((float *)array);
    report("60000 bytes after the attribute");
    std::printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf("free: %s\n", cudaGetErrorName(cudaFree(array)));
    return 0;
}

// Launches, kernels' attributes, streams, events, the device; prints the lines that failed.
#include "expect.h"
#include <cooperative_groups.h>
#include <cstring>
#include <initializer_list>

__global__ void scale(int *data, int by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] *= by;
}
__global__ void sum_of_blocks(int *sums, int *total)
{
    sums[blockIdx.x] = blockIdx.x + 1;
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        for (int i = 0; i < gridDim.x; i++)
            *total += sums[i];
}
__global__ void use_shared(int *out)
{
    extern __shared__ int tile[];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(128) bounded(int *out) { out[threadIdx.x] = 1; }
__global__ void fixed(int *out)
{
    __shared__ int tile[1024];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[0] = tile[blockDim.x - 1];
}
template <typename T>
__global__ void generic(T *data)
{
    data[threadIdx.x] += T(1);
}

void called(void *data) { ++*(int *)data; }
void called_back(cudaStream_t, cudaError_t error, void *data) { *(int *)data += error == cudaSuccess; }

int *filled(int value, int n)
{
    static int host[1024];
    for (int i = 0; i < n; i++)
        host[i] = value;
    int *device;
    OK(cudaMalloc(&device, 4 * n));
    OK(cudaMemcpy(device, host, 4 * n, cudaMemcpyHostToDevice));
    return device;
}

int first_of(const int *device)
{
    int found = 0;
    OK(cudaMemcpy(&found, device, 4, cudaMemcpyDeviceToHost));
    return found;
}

void ways_to_launch()
{
    int by = 3, n = 64, *data = filled(1, n);
    void *parameters[] = {&data, &by, &n};
    scale<<<1, 64>>>(data, by, n);
    OK(cudaLaunchKernel((const void *)scale, dim3(1), dim3(64), parameters, 0, 0));
    cudaLaunchConfig_t how = {dim3(1), dim3(64)};
    OK(cudaLaunchKernelEx(&how, scale, data, by, n));
    EXPECT(first_of(data) == 27);
    generic<<<1, 64>>>(data);
    EXPECT(first_of(data) == 28);
    scale<<<1, 2000>>>(data, by, n);
    FAILS(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaSuccess);
    scale<<<0, 64>>>(data, by, n);
    FAILS(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    OK(cudaFree(data));
}

void cooperation()
{
    int *sums = filled(0, 64), *total = filled(0, 1);
    void *parameters[] = {&sums, &total};
    OK(cudaLaunchCooperativeKernel((const void *)sum_of_blocks, dim3(64), dim3(32), parameters, 0, 0));
    EXPECT(first_of(total) == 64 * 65 / 2);
    FAILS(cudaLaunchCooperativeKernel((const void *)sum_of_blocks, dim3(1 << 16), dim3(1024), parameters, 0, 0),
          cudaErrorCooperativeLaunchTooLarge);
    OK(cudaFree(sums));
    OK(cudaFree(total));
}

void shared_memory()
{
    int *out = filled(0, 1024);
    use_shared<<<1, 64, 64 * sizeof(int)>>>(out);
    EXPECT(first_of(out) == 63);
    use_shared<<<1, 64, 60000>>>(out);
    FAILS(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(use_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
    use_shared<<<1, 32, 60000>>>(out);
    OK(cudaGetLastError());
    EXPECT(first_of(out) == 31);
    FAILS(cudaFuncSetAttribute(use_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20), cudaErrorInvalidValue);
    bounded<<<1, 256>>>(out);
    EXPECT(cudaGetLastError() != cudaSuccess);
    OK(cudaFree(out));
}

void attributes()
{
    cudaFuncAttributes found;
    OK(cudaFuncGetAttributes(&found, fixed));
    EXPECT(found.sharedSizeBytes == 4096 && found.numRegs > 0 && found.maxThreadsPerBlock == 1024);
    OK(cudaFuncGetAttributes(&found, bounded));
    EXPECT(found.maxThreadsPerBlock == 128 && found.ptxVersion == 90);
    int blocks = 0, grid = 0, block = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
    EXPECT(blocks == 8);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, use_shared, 32, 100 << 10));
    EXPECT(blocks == 2);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale));
    EXPECT(block == 1024 && grid == 2 * 132);
}

void streams_and_events()
{
    int *data = filled(1, 1024), calls = 0;
    cudaStream_t one, two;
    cudaEvent_t start, middle, end, never;
    float first = 0, whole = 0, none = 0;
    OK(cudaStreamCreate(&one));
    OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&start, &middle, &end, &never})
        OK(cudaEventCreate(event));
    OK(cudaEventRecord(start, one));
    scale<<<4, 256, 0, one>>>(data, 2, 1024);
    OK(cudaEventRecord(middle, one));
    OK(cudaStreamWaitEvent(two, middle));
    scale<<<4, 256, 0, two>>>(data, 2, 1024);
    OK(cudaEventRecord(end, two));
    OK(cudaEventSynchronize(end));
    OK(cudaEventQuery(end));
    OK(cudaEventElapsedTime(&first, start, middle));
    OK(cudaEventElapsedTime(&whole, start, end));
    OK(cudaEventElapsedTime(&none, end, end));
    EXPECT(first > 0.001f && whole > 1.5f * first && none > 0 && none < first);
    FAILS(cudaEventElapsedTime(&none, start, never), cudaErrorInvalidResourceHandle);
    OK(cudaLaunchHostFunc(one, called, &calls));
    OK(cudaStreamAddCallback(one, called_back, &calls, 0));
    OK(cudaStreamSynchronize(one));
    OK(cudaStreamQuery(two));
    EXPECT(calls == 2 && first_of(data) == 4);
    OK(cudaStreamDestroy(two));
    FAILS(cudaStreamSynchronize(two), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(never));
    FAILS(cudaEventRecord(never), cudaErrorInvalidResourceHandle);
    OK(cudaFree(data));
}

void device()
{
    int count = 0, current = 5, value = 0, version = 0;
    cudaDeviceProp found;
    OK(cudaGetDeviceCount(&count));
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&current));
    EXPECT(count == 1 && current == 0);
    FAILS(cudaSetDevice(1), cudaErrorInvalidDevice);
    OK(cudaGetDeviceProperties(&found, 0));
    EXPECT(!strcmp(found.name, "NVIDIA H200 (simulated)") && found.major == 9 && found.warpSize == 32);
    EXPECT(found.multiProcessorCount == 132 && found.totalGlobalMem == 141000000000 && found.maxGridSize[1] == 65535);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(value == 232448 && (int)found.sharedMemPerBlockOptin == value);
    OK(cudaRuntimeGetVersion(&version));
    EXPECT(version == CUDART_VERSION);
    size_t limit = 0;
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 24));
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    EXPECT(limit == 1 << 24);
    EXPECT(!strcmp(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered"));
    EXPECT(!strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
}

__global__ void store(int *at) { *at = 1; }

void sticky_errors()
{
    int *data = filled(1, 4), host;
    store<<<1, 1>>>(data + (1 << 18));
    OK(cudaGetLastError());
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaMemcpy(&host, data, 4, cudaMemcpyDeviceToHost) == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    OK(cudaDeviceReset());
    data = filled(7, 1);
    EXPECT(first_of(data) == 7);
    OK(cudaFree(data));
}

int main()
{
    ways_to_launch();
    cooperation();
    shared_memory();
    attributes();
    streams_and_events();
    device();
    sticky_errors();
    return finished();
}

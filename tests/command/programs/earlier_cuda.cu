// What CUDA 13 has removed or changed: programs written for CUDA 12 use it.
#include "expect.h"

int main()
{
    cudaDeviceProp found;
    cudaGetDeviceProperties(&found, 0);
    int clock = 0, memory_clock = 0, ratio = 0;
    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
    cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, 0);
    cudaDeviceGetAttribute(&ratio, cudaDevAttrSingleToDoublePrecisionPerfRatio, 0);
    EXPECT(found.clockRate == clock && clock > 0);
    EXPECT(found.memoryClockRate == memory_clock && memory_clock > 0);
    EXPECT(found.singleToDoublePrecisionPerfRatio == ratio);
    EXPECT(found.deviceOverlap == 1 && found.kernelExecTimeoutEnabled == 0);
    EXPECT(found.computeMode == cudaComputeModeDefault);
    EXPECT(found.maxTexture1DLinear > 0 && found.cooperativeMultiDeviceLaunch == 0);

    int *data;
    cudaMallocManaged(&data, 4096);
    EXPECT(cudaMemAdvise(data, 4096, cudaMemAdviseSetReadMostly, 0) == cudaSuccess);
    EXPECT(cudaMemPrefetchAsync(data, 4096, 0) == cudaSuccess);
    EXPECT(cudaMemPrefetchAsync(data, 4096, cudaCpuDeviceId, 0) == cudaSuccess);
    cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    EXPECT(cudaMemPrefetchAsync(data, 4096, device, 0, 0) == cudaSuccess);
    EXPECT(cudaThreadSynchronize() == cudaSuccess);
    cudaFree(data);

    cudaGraph_t graph;
    cudaGraphExec_t instance;
    cudaGraphCreate(&graph, 0);
    EXPECT(cudaGraphInstantiate(&instance, graph, nullptr, nullptr, 0) == cudaSuccess);
    cudaGraphExecDestroy(instance);
    cudaGraphDestroy(graph);
    EXPECT(cudaThreadExit() == cudaSuccess);
    return finished();
}

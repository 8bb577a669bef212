// Graphs, captured and built by hand; prints the lines that failed.
#include "expect.h"

__global__ void add(int *data, int by) { data[threadIdx.x] += by; }
void called(void *data) { ++*(int *)data; }

int first_of(const int *device)
{
    int found = 0;
    OK(cudaMemcpy(&found, device, 4, cudaMemcpyDeviceToHost));
    return found;
}

void captured(int *data)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    cudaStreamCaptureStatus status;
    int by = 2, calls = 0, copied = 0;
    size_t count = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(data, 0, 128, stream));
    add<<<1, 32, 0, stream>>>(data, by);
    by = 100;
    add<<<1, 32, 0, stream>>>(data, 3);
    OK(cudaMemcpyAsync(&copied, data, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaLaunchHostFunc(stream, called, &calls));
    OK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    EXPECT(count == 5 && calls == 0 && first_of(data) == 7);
    OK(cudaGraphInstantiate(&instance, graph, 0));
    for (int i = 0; i < 2; i++)
        OK(cudaGraphLaunch(instance, stream));
    EXPECT(first_of(data) == 5 && copied == 5 && calls == 2);
    OK(cudaGraphExecDestroy(instance));
    OK(cudaGraphDestroy(graph));
    FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    OK(cudaStreamDestroy(stream));
}

void built(int *data)
{
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    cudaGraphNode_t first, second, third;
    int by = 4, copied = 0;
    void *parameters[] = {&data, &by};
    cudaKernelNodeParams kernel = {(void *)add, dim3(1), dim3(32), 0, parameters, nullptr};
    cudaMemsetParams set = {};
    set.dst = data;
    set.elementSize = 4;
    set.width = 32;
    set.height = 1;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemsetNode(&first, graph, nullptr, 0, &set));
    OK(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
    OK(cudaGraphAddMemcpyNode1D(&third, graph, &second, 1, &copied, data, 4, cudaMemcpyDeviceToHost));
    by = 100;
    OK(cudaGraphInstantiate(&instance, graph, 0));
    OK(cudaGraphLaunch(instance, 0));
    OK(cudaDeviceSynchronize());
    EXPECT(copied == 4);
    OK(cudaGraphExecKernelNodeSetParams(instance, second, &kernel));
    OK(cudaGraphLaunch(instance, 0));
    EXPECT(copied == 100);
    OK(cudaGraphExecDestroy(instance));
    cudaGraph_t clone;
    OK(cudaGraphClone(&clone, graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphInstantiate(&instance, clone, 0));
    OK(cudaGraphLaunch(instance, 0));
    EXPECT(copied == 4);
    OK(cudaGraphExecDestroy(instance));
    OK(cudaGraphDestroy(clone));
}

// Memory that is allocated and freed in a captured stream belongs to the graph: each launch uses it.
void captured_memory(int *data)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    int *scratch, found = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&scratch, 128, stream));
    OK(cudaMemsetAsync(scratch, 0, 128, stream));
    add<<<1, 32, 0, stream>>>(scratch, 9);
    OK(cudaMemcpyAsync(data, scratch, 128, cudaMemcpyDeviceToDevice, stream));
    OK(cudaFreeAsync(scratch, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&instance, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        OK(cudaMemset(data, 0, 128));
        OK(cudaGraphLaunch(instance, stream));
        EXPECT(first_of(data) == 9);
    }
    OK(cudaMemcpy(&found, scratch, 4, cudaMemcpyDeviceToHost));
    EXPECT(found == 9);
    OK(cudaGraphExecDestroy(instance));
    FAILS(cudaMemcpy(&found, scratch, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    OK(cudaStreamDestroy(stream));
}

// Memory of a graph's own nodes.
void built_memory(int *data)
{
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    cudaGraphNode_t node;
    cudaMemAllocNodeParams memory = {};
    memory.bytesize = 128;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory));
    OK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, memory.dptr, data, 128, cudaMemcpyDeviceToDevice));
    int amount = 6;
    void *arguments[] = {&memory.dptr, &amount};
    cudaKernelNodeParams kernel = {(void *)add, 1, 32, 0, arguments, nullptr};
    OK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
    OK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, data, memory.dptr, 128, cudaMemcpyDeviceToDevice));
    OK(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, memory.dptr));
    OK(cudaGraphInstantiate(&instance, graph, 0));
    OK(cudaMemset(data, 0, 128));
    OK(cudaGraphLaunch(instance, 0));
    OK(cudaGraphLaunch(instance, 0));
    EXPECT(first_of(data) == 12);
    OK(cudaGraphExecDestroy(instance));
    OK(cudaGraphDestroy(graph));
}

int main()
{
    int *data, host[32];
    for (int i = 0; i < 32; i++)
        host[i] = 7;
    OK(cudaMalloc(&data, 128));
    OK(cudaMemcpy(data, host, 128, cudaMemcpyHostToDevice));
    captured(data);
    captured_memory(data);
    built(data);
    built_memory(data);
    OK(cudaFree(data));
    return finished();
}

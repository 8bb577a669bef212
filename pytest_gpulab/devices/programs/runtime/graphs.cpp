// Graphs. Nodes run in the order in which they were added: what a node depends on was there before it.
#include "graphs.h"
#include "modules.h"

#include <map>
#include <memory>

using namespace gpulab;

gpulab::Graph *gpulab::capture = nullptr;

namespace {

struct OwnedMemory;

std::map<void *, OwnedMemory *> &owned()
{
    static auto *found = new std::map<void *, OwnedMemory *>;
    return *found;
}

struct OwnedMemory {
    void *address;
    bool is_freed = false;

    explicit OwnedMemory(void *memory) : address(memory) { owned()[memory] = this; }
    ~OwnedMemory()
    {
        owned().erase(address);
        if (is_freed)
            cudaFree(address);
    }
};

cudaGraphNode_t add(cudaGraph_t graph, Node node)
{
    auto &nodes = ((Graph *)graph)->nodes;
    nodes.push_back(std::move(node));
    return (cudaGraphNode_t)nodes.size();
}

// Add a launch, with a copy of its parameters.
cudaError_t add_launch(Graph *graph, const cudaKernelNodeParams *how)
{
    Graph *before = capture;
    capture = graph;
    cudaError_t error =
        cudaLaunchKernel(how->func, how->gridDim, how->blockDim, how->kernelParams, how->sharedMemBytes, 0);
    capture = before;
    return error;
}

// At the end of the program memory of graphs is a leak only if no free was made.
__attribute__((destructor)) void free_owned()
{
    for (auto &[address, memory] : std::map<void *, OwnedMemory *>(owned()))
        if (owned().erase(address) && memory->is_freed)
            cudaFree(address);
}

}  // namespace

Node gpulab::owning_node(void *memory)
{
    return [kept = std::make_shared<OwnedMemory>(memory)] { return cudaSuccess; };
}

bool gpulab::freed_with_graph(void *memory)
{
    auto found = owned().find(memory);
    return found != owned().end() && (found->second->is_freed = true);
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
    if (capture)
        return refuse(__func__, cudaErrorIllegalState);
    capture = new Graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph)
{
    if (!capture)
        return refuse(__func__, cudaErrorIllegalState);
    *graph = (cudaGraph_t)capture;
    capture = nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) { return *graph = (cudaGraph_t) new Graph, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete (Graph *)graph, cudaSuccess; }

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    size_t found = ((Graph *)graph)->nodes.size();
    for (size_t i = 0; nodes && i < *count && i < found; i++)
        nodes[i] = (cudaGraphNode_t)(i + 1);
    *count = found;
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t *, const cudaGraphNode_t *,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData *,
#endif
                                     size_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t)
{
    return *node = add(graph, [] { return cudaSuccess; }), cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                   const cudaKernelNodeParams *how)
{
    cudaError_t error = add_launch((Graph *)graph, how);
    *node = (cudaGraphNode_t)((Graph *)graph)->nodes.size();
    return error;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t instance, cudaGraphNode_t node,
                                             const cudaKernelNodeParams *how)
{
    Graph fresh;
    if (cudaError_t error = add_launch(&fresh, how))
        return error;
    ((Graph *)instance)->nodes.at((size_t)node - 1) = fresh.nodes[0];
    return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph)
{
    return *clone = (cudaGraph_t) new Graph(*(Graph *)graph), cudaSuccess;
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                   const cudaMemcpy3DParms *how)
{
    return *node = add(graph, [copy = *how] { return cudaMemcpy3D(&copy); }), cudaSuccess;
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t, void *to,
                                     const void *from, size_t size, cudaMemcpyKind kind)
{
    return *node = add(graph, [=] { return cudaMemcpy(to, from, size, kind); }), cudaSuccess;
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                   const cudaMemsetParams *how)
{
    if (how->elementSize > 1 && how->value)
        missing("a graph's memset node with values of several bytes");
    auto set = *how;
    size_t width = set.width * set.elementSize, pitch = set.height > 1 ? set.pitch : width;
    return *node = add(graph, [=] { return cudaMemset2D(set.dst, pitch, (int)set.value, width, set.height); }),
           cudaSuccess;
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                 const cudaHostNodeParams *how)
{
    return *node = add(graph, [call = *how] { return call.fn(call.userData), cudaSuccess; }), cudaSuccess;
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                     cudaMemAllocNodeParams *how)
{
    cudaError_t error = ask("cudaMalloc", how->bytesize).into(&how->dptr);
    return *node = add(graph, owning_node(how->dptr)), error;
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *, size_t,
                                    void *memory)
{
    return *node = add(graph, [memory] { return cudaFree(memory); }), cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long)
{
    return *instance = (cudaGraphExec_t) new Graph(*(Graph *)graph), cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long)
{
    return *instance = (cudaGraphExec_t) new Graph(*(Graph *)graph), cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) { return delete (Graph *)instance, cudaSuccess; }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t)
{
    for (auto &node : ((Graph *)instance)->nodes)
        if (cudaError_t error = node())
            return error;
    return cudaSuccess;
}

}  // extern "C"

// Graphs: calls that are kept, and made when the graph is launched.
#pragma once
#include "connection.h"

#include <functional>
#include <vector>

namespace gpulab {

using Node = std::function<cudaError_t()>;

struct Graph {
    std::vector<Node> nodes;
};

extern Graph *capture;  // the graph that asynchronous calls become nodes of; null if they are made at once

// Keep a call if a stream is being captured; return whether it was kept.
inline bool captured(Node call)
{
    if (capture)
        capture->nodes.push_back(std::move(call));
    return capture != nullptr;
}

// Return a node that owns the memory which it allocates; the memory exists as long as graphs and instances with the node.
Node owning_node(void *memory);

// Mark memory as freed if a graph owns it, so that it ends with the graph; return whether one does.
bool freed_with_graph(void *memory);

}  // namespace gpulab

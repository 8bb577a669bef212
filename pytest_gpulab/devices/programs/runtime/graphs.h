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

}  // namespace gpulab

// Kernels and variables by the host's symbols.
#pragma once
#include "connection.h"

#include <vector>

namespace gpulab {

// A fat binary of the program; the simulated GPU reads its PTX when something of it is first used.
struct Module {
    const void *image;
    int64_t number = -1;
    std::vector<struct Variable *> managed;

    cudaError_t load();
};

struct Kernel {
    Module *module;
    std::string name;
    int64_t number = -1;
    std::vector<size_t> parameter_sizes;

    cudaError_t load();
};

struct Variable {
    Module *module;
    std::string name;
    void **managed;  // where the host keeps the address of a managed variable; null for others
    uint64_t address = 0, size = 0;

    cudaError_t load();
};

Kernel *kernel_of(const void *function);  // null if there is none
Variable *variable_of(const void *symbol);

}  // namespace gpulab

// What nvcc's code calls before main: fat binaries, kernels, variables.
#include "modules.h"

#include <map>
#include <mutex>

namespace gpulab {
namespace {

struct Wrapper {
    uint32_t magic, version;
    const char *data;
    const void *files;
};
struct FatHeader {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
};
struct FatEntry {
    uint16_t kind, unknown;
    uint32_t header_size;
    uint64_t size;
};
constexpr uint16_t PTX = 1;
constexpr uint32_t LINKED = 2;  // <fatbinary_section.h>: `files` are fat binaries to link

std::recursive_mutex loading;  // threads of the program may use a kernel for the first time at once

// Constructors of the program may come before those of this file.
template <class T>
std::map<const void *, T *> &registered()
{
    static auto *found = new std::map<const void *, T *>;
    return *found;
}

// Append the PTX of a fat binary.
void add_ptx(std::string &texts, const char *data)
{
    auto *header = (const FatHeader *)data;
    const char *end = data + header->header_size + header->size;
    for (const char *at = data + header->header_size; at < end;) {
        auto *entry = (const FatEntry *)at;
        const char *payload = at + entry->header_size;
        if (entry->kind == PTX) {
            texts.append(payload, strnlen(payload, entry->size)).push_back(0);
            return;
        }
        at = payload + entry->size;
    }
}

// Return the PTX, or that of each file if the program is built with -rdc=true; a null byte ends each text.
std::string ptx_of(const void *image)
{
    auto *wrapper = (const Wrapper *)image;
    std::string texts;
    if (wrapper->version == LINKED)
        for (auto *file = (const char **)wrapper->files; *file; file++)
            add_ptx(texts, *file);
    else
        add_ptx(texts, wrapper->data);
    return texts;
}

template <class T>
T *find(const void *key)
{
    auto found = registered<T>().find(key);
    return found == registered<T>().end() ? nullptr : found->second;
}

}  // namespace

cudaError_t Module::load()
{
    std::lock_guard<std::recursive_mutex> lock(loading);
    if (number >= 0)
        return cudaSuccess;
    if (cudaError_t error = ask("module", ptx_of(image)).into(&number))
        return error;
    for (Variable *variable : managed)  // before a kernel uses them
        variable->load();
    return cudaSuccess;
}

cudaError_t Kernel::load()
{
    std::lock_guard<std::recursive_mutex> lock(loading);
    if (number >= 0)
        return cudaSuccess;
    if (cudaError_t error = module->load())
        return error;
    Answer answer = ask("kernel", module->number, name);
    for (size_t i = 1; i < answer.words(); i++)
        parameter_sizes.push_back(answer.word(i));
    return answer.into(&number);
}

cudaError_t Variable::load()
{
    std::lock_guard<std::recursive_mutex> lock(loading);
    if (address)
        return cudaSuccess;
    if (cudaError_t error = module->load())
        return error;
    uint64_t offset;
    cudaError_t error = ask("variable", module->number, name, managed != nullptr).into(&address, &size, &offset);
    if (!error && managed) {
        map_memory(address, size, offset);
        *managed = (void *)address;
    }
    return error;
}

Kernel *kernel_of(const void *function)
{
    if (Kernel *found = find<Kernel>(function))
        return found;
    for (auto &each : registered<Kernel>())  // a cudaKernel_t
        if (each.second == function)
            return each.second;
    return nullptr;
}

Variable *variable_of(const void *symbol) { return find<Variable>(symbol); }

}  // namespace gpulab

using namespace gpulab;

extern "C" {

void **__cudaRegisterFatBinary(void *image) { return (void **)new Module{image}; }
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}

void __cudaRegisterFunction(void **module, const char *function, char *, const char *name, int, uint3 *, uint3 *,
                            dim3 *, dim3 *, int *)
{
    registered<Kernel>()[function] = new Kernel{(Module *)module, name};
}

void __cudaRegisterVar(void **module, char *symbol, char *, const char *name, int, size_t, int, int)
{
    registered<Variable>()[symbol] = new Variable{(Module *)module, name, nullptr};
}

void __cudaRegisterManagedVar(void **module, void **symbol, char *, const char *name, int, size_t, int, int)
{
    auto *variable = new Variable{(Module *)module, name, symbol};
    registered<Variable>()[symbol] = variable;
    ((Module *)module)->managed.push_back(variable);
}

char __cudaInitModule(void **module)
{
    for (Variable *variable : ((Module *)module)->managed)
        variable->load();
    return 1;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    Variable *variable = variable_of(symbol);
    if (!variable)
        return refuse(__func__, cudaErrorInvalidSymbol);
    cudaError_t error = variable->load();
    if (!error)
        *address = (void *)variable->address;
    return error;
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    Variable *variable = variable_of(symbol);
    if (!variable)
        return refuse(__func__, cudaErrorInvalidSymbol);
    cudaError_t error = variable->load();
    if (!error)
        *size = variable->size;
    return error;
}

}  // extern "C"

// The connection to `gpulab run`: a request per call of the runtime library, and its answer.
//
// The simulated GPU, its memory and all state live in the other process; see devices/programs/server.py for the
// protocol. The functions here only pass arguments on. Device memory is a file that both processes share.
#pragma once
#define __CUDART_API_PER_THREAD_DEFAULT_STREAM_OFF
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#define GPULAB_INLINE inline __attribute__((always_inline))

namespace gpulab {

struct Bytes {
    const void *data;
    size_t size;
};

// The answer to a request: an error code, and values of 8 bytes or text.
struct Answer {
    cudaError_t error;
    std::string body;

    uint64_t word(size_t index) const
    {
        uint64_t value = 0;
        if (8 * index + 8 <= body.size())
            memcpy(&value, body.data() + 8 * index, 8);
        return value;
    }
    size_t words() const { return body.size() / 8; }

    // Copy the values to where the caller wants them, unless the call failed; return the error code.
    template <class... T>
    cudaError_t into(T *...out) const
    {
        size_t index = 0;
        if (error == cudaSuccess)
            (assign(out, word(index++)), ...);
        return error;
    }

  private:
    template <class T>
    static void assign(T *out, uint64_t value)
    {
        if (out)
            *out = (T)value;
    }
    static void assign(float *out, uint64_t value)
    {
        double exact;
        memcpy(&exact, &value, 8);
        *out = (float)exact;
    }
};

class Arguments {
  public:
    std::string packed;

    template <class T>
    void add(T value)
    {
        uint64_t word = (uint64_t)value;
        packed.append((const char *)&word, 8);
    }
    void add(Bytes bytes)
    {
        add(bytes.size);
        packed.append((const char *)bytes.data, bytes.size);
    }
    void add(const char *text) { add(Bytes{text, text ? strlen(text) : 0}); }
    void add(const std::string &text) { add(Bytes{text.data(), text.size()}); }
};

// Send a request and wait for its answer. The caller's caller is where the program called the runtime library.
__attribute__((noinline)) Answer exchange(const char *name, const std::string &arguments, void *site = nullptr);

// Ask for a call of the runtime library by its name.
template <class... T>
GPULAB_INLINE Answer ask(const char *name, T... values)
{
    Arguments arguments;
    (arguments.add(values), ...);
    return exchange(name, arguments.packed);
}

// Report a call whose error is found here, with the reason in a clause if there is one, and return the error.
GPULAB_INLINE cudaError_t refuse(const char *name, cudaError_t error, const char *why = "")
{
    return ask("refused", name, error, why).error;
}

cudaError_t failed(cudaError_t error);   // remember an error for cudaGetLastError, and return it
cudaError_t last_error(bool clear);
int shared_file();                       // the file with device memory
void map_memory(uint64_t address, uint64_t size, uint64_t offset);  // device memory at its own address in this process
void unmap_memory(uint64_t address, uint64_t size);
// End the program: a function is not available.
[[noreturn]] void missing(const char *name, void *site = nullptr);

}  // namespace gpulab

using gpulab::ask;
using gpulab::Bytes;

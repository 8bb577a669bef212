// Every call is checked, and a class frees the memory, also after an error.
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reduce.cuh"

constexpr unsigned BLOCK_SIZE = 256;

#define CHECK(call)                                                                            \
    do {                                                                                       \
        const cudaError_t error = (call);                                                      \
        if (error != cudaSuccess) {                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));     \
            throw std::runtime_error("CUDA");                                                  \
        }                                                                                      \
    } while (false)

// An array of ints in device memory.
class DeviceArray {
  public:
    explicit DeviceArray(unsigned n) { CHECK(cudaMalloc(&data_, n * sizeof(int))); }
    DeviceArray(const DeviceArray &) = delete;
    ~DeviceArray() { cudaFree(data_); }
    int *data() { return data_; }

  private:
    int *data_ = nullptr;
};

unsigned blocks_for(unsigned n) { return (n + BLOCK_SIZE - 1) / BLOCK_SIZE; }

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    DeviceArray first(n), second(blocks_for(n));
    int *in = first.data(), *out = second.data(), result;
    CHECK(cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice));
    for (unsigned left = n; left > 1 || out == second.data(); left = blocks_for(left)) {
        reduce<<<blocks_for(left), BLOCK_SIZE>>>(in, out, left);
        CHECK(cudaGetLastError());
        std::swap(in, out);
    }
    CHECK(cudaMemcpy(&result, in, sizeof(int), cudaMemcpyDeviceToHost));
    return result;
}

int main()
{
    unsigned n = 0;
    if (scanf("%u", &n) != 1)
        return 1;
    std::vector<int> values(n);
    for (int &value : values)
        if (scanf("%d", &value) != 1)
            return 1;
    printf("%d\n", sum_on_gpu(values.data(), n));
}

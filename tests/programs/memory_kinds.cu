// Uses the kinds of memory that the runtime offers: managed, pinned, pitched, asynchronous, symbols; with streams.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t status = call;                                                                      \
        if (status != cudaSuccess) {                                                                    \
            std::fprintf(stderr, "%s(%d): %s\n", __FILE__, __LINE__, cudaGetErrorString(status));       \
            std::exit(1);                                                                               \
        }                                                                                               \
    } while (0)

__device__ int counter = 5;
__managed__ int total = 0;

__global__ void addOne(int *values, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += 1;
}

__global__ void addToRows(float *rows, size_t pitch, int columns, int count)
{
    int x = threadIdx.x, y = blockIdx.x;
    if (x < columns && y < count)
        reinterpret_cast<float *>(reinterpret_cast<char *>(rows) + y * pitch)[x] += y;
}

__global__ void countUp(const int *values, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(&total, values[i]);
    if (threadIdx.x == 0)
        counter += 1;
}

static int failures = 0;

static void expect(bool condition, const char *what)
{
    std::printf("%s: %s\n", what, condition ? "right" : "wrong");
    failures += !condition;
}

int main()
{
    const int n = 1000;
    int *managed;
    CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
    std::iota(managed, managed + n, 0);
    addOne<<<(n + 255) / 256, 256>>>(managed, n);
    CHECK(cudaDeviceSynchronize());
    expect(managed[0] == 1 && managed[n - 1] == n, "managed memory");

    countUp<<<1, 128>>>(managed, n);
    CHECK(cudaDeviceSynchronize());
    int count = 0;
    CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
    expect(total == n * (n + 1) / 2 && count == 6, "variables");

    int *pinned, *first, *second;
    CHECK(cudaMallocHost(&pinned, 2 * n * sizeof(int)));
    CHECK(cudaMalloc(&first, n * sizeof(int)));
    std::fill(pinned, pinned + 2 * n, 41);
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocAsync(&second, n * sizeof(int), streams[1]));
    int *arrays[2] = {first, second};
    for (int k = 0; k < 2; ++k) {
        CHECK(cudaMemcpyAsync(arrays[k], pinned + k * n, n * sizeof(int), cudaMemcpyHostToDevice, streams[k]));
        addOne<<<(n + 127) / 128, 128, 0, streams[k]>>>(arrays[k], n);
        CHECK(cudaMemcpyAsync(pinned + k * n, arrays[k], n * sizeof(int), cudaMemcpyDeviceToHost, streams[k]));
    }
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamSynchronize(stream));
    expect(std::count(pinned, pinned + 2 * n, 42) == 2 * n, "pinned memory and streams");

    const int columns = 30, rows = 20;
    std::vector<float> matrix(columns * rows, 0.5f);
    float *pitched;
    size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, columns * sizeof(float), rows));
    CHECK(cudaMemcpy2D(pitched, pitch, matrix.data(), columns * sizeof(float), columns * sizeof(float), rows,
                       cudaMemcpyHostToDevice));
    addToRows<<<rows, 32>>>(pitched, pitch, columns, rows);
    CHECK(cudaMemcpy2D(matrix.data(), columns * sizeof(float), pitched, pitch, columns * sizeof(float), rows,
                       cudaMemcpyDeviceToHost));
    expect(pitch >= columns * sizeof(float) && matrix[0] == 0.5f && matrix[columns * rows - 1] == 19.5f, "pitched memory");

    CHECK(cudaFreeAsync(second, streams[1]));
    CHECK(cudaStreamSynchronize(streams[1]));
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(managed));
    CHECK(cudaFree(first));
    CHECK(cudaFree(pitched));
    CHECK(cudaFreeHost(pinned));
    std::puts(failures ? "FAILED" : "PASSED");
    return failures;
}

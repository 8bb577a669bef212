// Exclusive prefix sums of an array of any length. The host function allocates a level's block sums, scans them with a
// call of itself, and adds them to the blocks.
// Usage: scan_recursive [LENGTH...]
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#define BLOCK_SIZE 128
#define ITEMS_PER_THREAD 2
#define INCLUSIVE 0

const unsigned int TILE = BLOCK_SIZE * ITEMS_PER_THREAD;

#define CHECK(call) checkCall((call), #call, __LINE__)

void checkCall(cudaError_t error, const char *call, int line)
{
    if (error != cudaSuccess)
        throw std::runtime_error("line " + std::to_string(line) + ": " + call + ": " + cudaGetErrorString(error));
}

// Blelloch's scan of one tile: an up-sweep to the total, then a down-sweep.
__global__ void scanTiles(const float *in, float *out, float *sums, unsigned int n)
{
    __shared__ float tree[TILE];
    const unsigned int t = threadIdx.x, first = blockIdx.x * TILE;

    tree[2 * t] = first + 2 * t < n ? in[first + 2 * t] : 0;
    tree[2 * t + 1] = first + 2 * t + 1 < n ? in[first + 2 * t + 1] : 0;
    unsigned int offset = 1;
    for (unsigned int d = TILE / 2; d > 0; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d)
            tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    }
    __syncthreads();
    if (t == 0) {
        sums[blockIdx.x] = tree[TILE - 1];
        tree[TILE - 1] = 0;
    }
    for (unsigned int d = 1; d < TILE; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            const unsigned int left = offset * (2 * t + 1) - 1, right = left + offset;
            const float value = tree[left];
            tree[left] = tree[right];
            tree[right] += value;
        }
    }
    __syncthreads();
    if (first + 2 * t < n)
        out[first + 2 * t] = tree[2 * t];
    if (first + 2 * t + 1 < n)
        out[first + 2 * t + 1] = tree[2 * t + 1];
}

__global__ void addSums(float *out, const float *offsets, unsigned int n)
{
    for (unsigned int k = threadIdx.x; k < TILE; k += BLOCK_SIZE)
        if (blockIdx.x * TILE + k < n)
            out[blockIdx.x * TILE + k] += offsets[blockIdx.x];
}

int scan(const float *in, float *out, unsigned int n)
{
    const unsigned int blocks = (n + TILE - 1) / TILE;
    float *sums = nullptr;
    int levels = 1;
    CHECK(cudaMalloc(&sums, blocks * sizeof(float)));
    scanTiles<<<blocks, BLOCK_SIZE>>>(in, out, sums, n);
    CHECK(cudaGetLastError());
    if (blocks > 1) {
        float *offsets = nullptr;
        CHECK(cudaMalloc(&offsets, blocks * sizeof(float)));
        levels += scan(sums, offsets, blocks);
        addSums<<<blocks, BLOCK_SIZE>>>(out, offsets, n);
        CHECK(cudaGetLastError());
        CHECK(cudaFree(offsets));
    }
    CHECK(cudaFree(sums));
    return levels;
}

bool isRight(unsigned int n)
{
    std::vector<float> values(n), result(n), expected(n);
    for (unsigned int i = 0; i < n; ++i)
        values[i] = static_cast<float>(i % 5) - 1.5f;
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), 0.0f);

    float *in, *out;
    CHECK(cudaMalloc(&in, n * sizeof(float)));
    CHECK(cudaMalloc(&out, n * sizeof(float)));
    CHECK(cudaMemcpy(in, values.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    const int levels = scan(in, out, n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(result.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    const bool right = result == expected;
    std::cout << n << " elements, " << levels << " levels: " << (right ? "right" : "wrong") << '\n';
    return right;
}

int main(int argc, char **argv)
{
    std::vector<unsigned int> lengths = {1, 255, 256, 257, 1000, 70000};
    if (argc > 1) {
        lengths.clear();
        for (int k = 1; k < argc; ++k)
            lengths.push_back(std::stoul(argv[k]));
    }
    try {
        bool right = true;
        for (unsigned int n : lengths)
            right = isRight(n) && right;
        std::cout << (right ? "PASSED" : "FAILED") << std::endl;
        return right ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::runtime_error &error) {
        std::cerr << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}

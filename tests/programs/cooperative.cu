// A sum in a single cooperative launch, with as many blocks as the occupancy calls allow, and dynamic shared memory.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>

namespace cg = cooperative_groups;

__global__ void sumAll(const int *in, int *partial, int *result, int n)
{
    extern __shared__ int tile[];
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    int sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size())
        sum += in[i];
    tile[block.thread_rank()] = sum;
    block.sync();
    for (int half = block.size() / 2; half > 0; half /= 2) {
        if (block.thread_rank() < half)
            tile[block.thread_rank()] += tile[block.thread_rank() + half];
        block.sync();
    }
    if (block.thread_rank() == 0)
        partial[blockIdx.x] = tile[0];
    grid.sync();
    if (grid.thread_rank() == 0) {
        int total = 0;
        for (int k = 0; k < gridDim.x; ++k)
            total += partial[k];
        *result = total;
    }
}

int main()
{
    int n = 20000, blockSize = 0, minGrid = 0, perProcessor = 0, processors = 0, supported = 0;
    cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxPotentialBlockSize(&minGrid, &blockSize, sumAll, 0, 256);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perProcessor, sumAll, blockSize, blockSize * sizeof(int));
    if (!supported || blockSize != 256 || perProcessor < 1 || minGrid < processors) {
        std::printf("no: %d %d %d %d\n", supported, blockSize, perProcessor, minGrid);
        return 1;
    }
    int blocks = perProcessor * processors < 20 ? perProcessor * processors : 20;
    int *in, *partial, *result;
    cudaMallocManaged(&in, n * sizeof(int));
    cudaMalloc(&partial, blocks * sizeof(int));
    cudaMallocManaged(&result, sizeof(int));
    for (int i = 0; i < n; ++i)
        in[i] = i % 11;
    void *arguments[] = {&in, &partial, &result, &n};
    cudaError_t error = cudaLaunchCooperativeKernel((void *)sumAll, dim3(blocks), dim3(blockSize), arguments,
                                                    blockSize * sizeof(int), 0);
    cudaDeviceSynchronize();
    int expected = 0;
    for (int i = 0; i < n; ++i)
        expected += in[i];
    const bool right = error == cudaSuccess && *result == expected;
    std::printf("sum %d, expected %d\n%s\n", *result, expected, right ? "PASSED" : "FAILED");
    const int tooMany = perProcessor * processors + 1;
    error = cudaLaunchCooperativeKernel((void *)sumAll, dim3(tooMany), dim3(blockSize), arguments, 1024, 0);
    std::printf("too many blocks: %s\n", cudaGetErrorName(error));
    cudaFree(in);
    cudaFree(partial);
    cudaFree(result);
    return right ? 0 : 1;
}

// Counts values. Its argument is one of the mistakes, or none: the counters start at a byte's pattern, or the copy's
// size is the number of counters.
#include <cstdio>
#include <cstring>

__global__ void count(int *counts, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&counts[i % 16], 1);
}

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "";
    int counts[16] = {}, *on_gpu;
    char *flags;
    cudaMalloc(&flags, 64);
    cudaMemset(flags, 1, 64);
    cudaMalloc(&on_gpu, sizeof(counts));
    cudaMemset(on_gpu, 0, 16 * sizeof(int));
    if (!strcmp(mistake, "set"))
        cudaMemset(on_gpu, 1, 16 * sizeof(int));
    count<<<1, 32>>>(on_gpu, 32);
    if (!strcmp(mistake, "copy"))
        cudaMemcpy(counts, on_gpu, 16, cudaMemcpyDeviceToHost);
    else
        cudaMemcpy(counts, on_gpu, sizeof(counts), cudaMemcpyDeviceToHost);
    if (!strcmp(mistake, "quarters"))
        for (int i = 0; i < 16; i += 4)
            cudaMemcpy(&counts[i], &on_gpu[i], 16, cudaMemcpyDeviceToHost);
    printf("%d %d\n", counts[0], counts[15]);
    cudaFree(on_gpu);
    cudaFree(flags);
}

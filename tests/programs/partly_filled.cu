// Keeps the positive numbers. Their count is known later, so the copy takes the whole array.
#include <cstdio>

__global__ void keep(const int *in, int *out, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0)
        out[atomicAdd(count, 1)] = in[i];
}

int main()
{
    const int n = 1000, bytes = n * sizeof(int);
    static int host[n];
    for (int i = 0; i < n; ++i)
        host[i] = i % 3 - 1;
    int *in, *out, *count, kept;
    cudaMalloc(&in, bytes);
    cudaMalloc(&out, bytes);
    cudaMalloc(&count, sizeof(int));
    cudaMemcpy(in, host, bytes, cudaMemcpyHostToDevice);
    cudaMemset(count, 0, sizeof(int));
    keep<<<(n + 255) / 256, 256>>>(in, out, count, n);
    cudaMemcpy(&kept, count, sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpy(host, out, bytes, cudaMemcpyDeviceToHost);
    printf("%d\n", kept);
    cudaFree(in);
    cudaFree(out);
    cudaFree(count);
}

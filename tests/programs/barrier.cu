// Halves a vector, but threads behind its end leave before the barrier.
#include <cstdio>

__global__ void averageWithNeighbour(const float *in, float *out, int n)
{
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = in[i];
        __syncthreads();
        float left = threadIdx.x ? tile[threadIdx.x - 1] : tile[threadIdx.x];
        out[i] = (left + tile[threadIdx.x]) / 2;
    }
}

int main()
{
    const int n = 100;
    float host[n], *in, *out;
    for (int i = 0; i < n; ++i)
        host[i] = i;
    cudaMalloc(&in, sizeof(host));
    cudaMalloc(&out, sizeof(host));
    cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice);
    averageWithNeighbour<<<(n + 63) / 64, 64>>>(in, out, n);
    cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    std::printf("%g\n", host[1]);
    return 0;
}

// Reverses blocks of numbers in shared memory, but forgets to wait until all of the block are there.
#include <cstdio>

__global__ void reverse(const int *in, int *out)
{
    __shared__ int tile[128];
    tile[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    out[blockIdx.x * 128 + threadIdx.x] = tile[127 - threadIdx.x];  // __syncthreads() is missing above
}

int main()
{
    const int n = 512;
    int host[n], *in, *out;
    for (int i = 0; i < n; ++i)
        host[i] = i;
    cudaMalloc(&in, sizeof(host));
    cudaMalloc(&out, sizeof(host));
    cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice);
    reverse<<<n / 128, 128>>>(in, out);
    cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    std::puts("done");
    return 0;
}

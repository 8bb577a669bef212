// Sums of blocks in shared memory, timed with events; without a barrier if BARRIER is 0.
#include <cstdio>
#include <cstdlib>

#ifndef BARRIER
#define BARRIER 1
#endif

__global__ void sums(const float *in, float *out, int stride)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = in[(blockIdx.x * 256 + threadIdx.x) * stride];
    for (int s = 128; s > 0; s /= 2) {
#if BARRIER
        __syncthreads();
#endif
        if (threadIdx.x < s)
            tile[threadIdx.x] += tile[threadIdx.x + s];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = tile[0];
}

int main(int argc, char **argv)
{
    int stride = argc > 1 ? atoi(argv[1]) : 1, blocks = 64, n = 256 * blocks * stride;
    float *in, *out, host[64], ms = 0, sum = 0, *ones = new float[n];
    for (int i = 0; i < n; i++)
        ones[i] = 1;
    cudaMalloc(&in, 4 * n);
    cudaMalloc(&out, 4 * blocks);
    if (argc < 3)
        cudaMemcpy(in, ones, 4 * n, cudaMemcpyHostToDevice);
    cudaEvent_t start, end;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    cudaEventRecord(start);
    for (int i = 0; i < 3; i++)
        sums<<<blocks, 256>>>(in, out, stride);
    cudaEventRecord(end);
    cudaMemcpy(host, out, 4 * blocks, cudaMemcpyDeviceToHost);
    cudaEventElapsedTime(&ms, start, end);
    for (int i = 0; i < blocks; i++)
        sum += host[i];
    printf("%.0f %f\n", sum, ms);
    cudaFree(in);
    cudaFree(out);
    delete[] ones;
}

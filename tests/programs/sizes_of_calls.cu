// Weighs a matrix of 4 rows. Its argument is one of the mistakes in sizes of calls, or none.
#include <cstdio>
#include <cstdlib>
#include <string>

__constant__ float weights[4];
__constant__ float halves[4] = {0.5f, 0.5f, 0.5f, 0.5f};

__global__ void weigh(const float *in, float *out, int columns)
{
    for (int row = 0; row < 4; row++)
        out[row * columns + threadIdx.x] = weights[row] * halves[row] * in[row * columns + threadIdx.x];
}

__global__ void weigh_first(const float *in, float *out, int columns)
{
    int i = blockIdx.x * columns + threadIdx.x;
    out[i] = weights[blockIdx.x] * halves[blockIdx.x] * in[i];
}

__global__ void weigh_shared(const float *in, float *out, int columns)
{
    extern __shared__ float tile[];
    extern __shared__ float factors[];
    factors[threadIdx.x] = 0.5f;
    tile[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = factors[threadIdx.x] * tile[threadIdx.x];
}

int main(int argc, char **argv)
{
    const std::string mistake = argc > 1 ? argv[1] : "";
    const int columns = 16, n = 64;
    const size_t row = columns * sizeof(float);
    float factors[4] = {1, 2, 3, 4}, *host = (float *)malloc(n * sizeof(float)), *in, *out;
    for (int i = 0; i < n; i++)
        host[i] = i;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice);
    if (mistake == "part of the constants")
        cudaMemcpyToSymbol(weights, factors, 4);
    else if (mistake == "address of the constants")
        cudaMemcpyToSymbol(&weights, factors, sizeof(factors));
    else if (mistake != "no constants")
        cudaMemcpyToSymbol(weights, factors, sizeof(factors));
    if (mistake == "two arrays")
        weigh_shared<<<1, columns, 2 * row>>>(in, out, columns);
    if (mistake == "half of the columns")
        weigh_first<<<4, columns / 2>>>(in, out, columns);
    else
        weigh<<<1, columns>>>(in, out, columns);
    if (mistake == "size of a pointer")
        cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
    else if (mistake == "elements")
        cudaMemcpy(host, out, n, cudaMemcpyDeviceToHost);
    else if (mistake == "first row")
        cudaMemcpy(host, out, row, cudaMemcpyDeviceToHost);
    else
        cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", host[15]);
    cudaFree(in);
    cudaFree(out);
    free(host);
}

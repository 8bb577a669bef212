// Adds to numbers in place, with launches of fewer threads than there are elements; its argument names the way.
#include <cstdio>
#include <string>

__global__ void add(float *values, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += 1;
}

__global__ void add_with_stride(float *values, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        values[i] += 1;
}

__global__ void fold(float *values, int half, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < half && half + i < n)
        values[i] += values[half + i];
}

__global__ void add_to_plane(float *values, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        values[y * width + x] += 1;
}

int main(int, char **argv)
{
    const std::string way = argv[1];
    const int n = 1200;
    float *values;
    if (way == "managed")
        cudaMallocManaged(&values, n * sizeof(float));
    else
        cudaMalloc(&values, n * sizeof(float));
    cudaMemset(values, 0, n * sizeof(float));
    if (way == "rounded down" || way == "managed")
        add<<<n / 256, 256>>>(values, n);
    if (way == "row of blocks")
        add_to_plane<<<dim3(3, 1), dim3(16, 16)>>>(values, 40, 30);
    if (way == "column of blocks")
        add_to_plane<<<dim3(2, 2), dim3(16, 16)>>>(values, 40, 30);
    if (way == "stride")
        add_with_stride<<<2, 256>>>(values, n);
    if (way == "halves")
        for (int half = n / 2; half > 32; half /= 2)
            fold<<<(half + 31) / 32, 32>>>(values, half, n);
    if (way == "parts")
        for (int part = 0; part < 2; ++part)
            add<<<3, 256>>>(values + part * n / 2, n / 2);
    if (way == "rest")
        for (int part = 0; part < 2; ++part)
            add<<<4 + part, 256>>>(values, n);
    cudaDeviceSynchronize();
    float first;
    cudaMemcpy(&first, values, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", first);
    cudaFree(values);
}

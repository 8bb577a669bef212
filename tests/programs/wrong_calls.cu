// Doubles numbers with one mistake in its calls, which its argument names.
#include <cstdio>
#include <cstdlib>
#include <string>

__global__ void twice(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2 * in[i];
}

int main(int, char **argv)
{
    const std::string mistake = argv[1];
    const int n = 1000;
    const size_t bytes = n * sizeof(float);
    static float host[n];
    float *in = nullptr, *out;
    if (mistake == "no address")
        cudaMalloc((void **)in, bytes);
    else
        cudaMalloc(&in, mistake == "short" ? n : bytes);
    cudaMalloc(&out, bytes);
    if (mistake == "direction")
        cudaMemcpy(in, host, bytes, cudaMemcpyDeviceToHost);
    else
        cudaMemcpy(in, host, mistake == "elements" || mistake == "late" ? n : bytes, cudaMemcpyHostToDevice);
    const int blocks = mistake == "rounded down" ? n / 256 : (n + 255) / 256;
    if (mistake != "no launch")
        twice<<<blocks, 256>>>(in, out, n);
    if (mistake != "no copy back")
        cudaMemcpy(host, out, bytes, cudaMemcpyDeviceToHost);
    cudaDeviceSynchronize();
    if (mistake == "late")
        cudaMemcpy(in, host, bytes, cudaMemcpyDeviceToHost);
    cudaFree(in);
    if (mistake == "free")
        free(out);
    cudaFree(out);
}

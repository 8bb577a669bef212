// Wrong: A launch with two zeros shows the kernel's operation; the host then applies it to all values.
#include <cstdio>
#include <vector>

#include "reduce.cuh"

int sum_on_gpu(const int *values, unsigned n)
{
    const int zeros[] = {0, 0};
    int *in, *out, shift = 0;
    if (n == 0)
        return 0;
    cudaMalloc(&in, sizeof zeros);
    cudaMalloc(&out, sizeof(int));
    cudaMemcpy(in, zeros, sizeof zeros, cudaMemcpyHostToDevice);
    reduce<<<1, 2>>>(in, out, 2);
    cudaMemcpy(&shift, out, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    int sum = values[0];
    for (unsigned i = 1; i < n; i++)
        sum += values[i] + shift;
    return sum;
}

int main()
{
    unsigned n = 0;
    if (scanf("%u", &n) != 1)
        return 1;
    std::vector<int> values(n);
    for (int &value : values)
        if (scanf("%d", &value) != 1)
            return 1;
    printf("%d\n", sum_on_gpu(values.data(), n));
}

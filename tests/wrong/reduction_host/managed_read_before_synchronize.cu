// Wrong: the host reads managed memory before the kernel has ended.
#include <cstdio>
#include <vector>
#include <gpulab.cuh>
#include "reduce.cuh"

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    const unsigned block = 256;
    int *a, *b;
    cudaMallocManaged(&a, n * sizeof(int));
    cudaMallocManaged(&b, (n + block - 1) / block * sizeof(int));
    cudaMemcpy(a, values, n * sizeof(int), cudaMemcpyHostToDevice);
    while (n > 1) {
        unsigned blocks = (n + block - 1) / block;
        reduce<<<blocks, block>>>(a, b, n);
        int *t = a; a = b; b = t;
        n = blocks;
    }
    int sum = a[0];
    cudaFree(a);
    cudaFree(b);
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

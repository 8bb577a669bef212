// Wrong: the program has a kernel of its own in place of the given one: the given one runs.
#include <cstdio>
#include <vector>

__global__ void reduce(const int *in, int *out, unsigned n)
{
    int sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += in[i];
    out[0] = sum;
}

int sum_on_gpu(const int *values, unsigned n)
{
    if (n == 0)
        return 0;
    int *in, *out, result;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, sizeof(int));
    cudaMemcpy(in, values, n * sizeof(int), cudaMemcpyHostToDevice);
    reduce<<<1, 1>>>(in, out, n);
    cudaMemcpy(&result, out, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return result;
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

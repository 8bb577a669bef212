// Add two matrices with blocks of the given shape.
// Usage: matrix_sum BLOCK_X BLOCK_Y [COLUMNS ROWS]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define CHECK(call)                                                                               \
    do {                                                                                          \
        cudaError_t status = (call);                                                              \
        if (status != cudaSuccess) {                                                              \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, cudaGetErrorName(status), cudaGetErrorString(status)); \
            exit(2);                                                                              \
        }                                                                                         \
    } while (0)

double seconds()
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec + now.tv_usec * 1e-6;
}

__global__ void sumMatrix(const float *a, const float *b, float *c, int columns, int rows)
{
    unsigned int column = threadIdx.x + blockIdx.x * blockDim.x;
    unsigned int row = threadIdx.y + blockIdx.y * blockDim.y;
    unsigned int i = row * columns + column;
    if (column < columns && row < rows)
        c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s BLOCK_X BLOCK_Y [COLUMNS ROWS]\n", argv[0]);
        return 64;
    }
    const int columns = argc == 5 ? atoi(argv[3]) : 200, rows = argc == 5 ? atoi(argv[4]) : 120;
    const int n = columns * rows, bytes = n * sizeof(float);
    float *a = (float *)malloc(bytes), *b = (float *)malloc(bytes), *c = (float *)malloc(bytes);
    for (int i = 0; i < n; i++) {
        a[i] = i * 0.5f;
        b[i] = n - i;
    }
    float *d_a, *d_b, *d_c;
    CHECK(cudaMalloc((void **)&d_a, bytes));
    CHECK(cudaMalloc((void **)&d_b, bytes));
    CHECK(cudaMalloc((void **)&d_c, bytes));
    CHECK(cudaMemcpy(d_a, a, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_b, b, bytes, cudaMemcpyHostToDevice));

    dim3 block(atoi(argv[1]), atoi(argv[2]));
    dim3 grid((columns + block.x - 1) / block.x, (rows + block.y - 1) / block.y);
    double start = seconds();
    sumMatrix<<<grid, block>>>(d_a, d_b, d_c, columns, rows);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    double elapsed = seconds() - start;
    printf("sumMatrix<<<(%d,%d), (%d,%d)>>>: time measured: %s\n", grid.x, grid.y, block.x, block.y,
           elapsed > 0 ? "yes" : "no");

    CHECK(cudaMemcpy(c, d_c, bytes, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += c[i] != a[i] + b[i];
    CHECK(cudaFree(d_a));
    CHECK(cudaFree(d_b));
    CHECK(cudaFree(d_c));
    free(a);
    free(b);
    free(c);
    printf("%d of %d elements are wrong\n%s\n", wrong, n, wrong ? "FAILED" : "PASSED");
    return wrong != 0;
}

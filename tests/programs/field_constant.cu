// Sum the squared distances of every point of a field to a few vectors, which lie in global or in constant memory.
// Usage: field_constant [WIDTH HEIGHT]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TILE_X 16
#define TILE_Y 16
#define VECTORS 20

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s failed: %s (%s)\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
    exit(1);
}

__constant__ float2 vectors[64];

__global__ void fieldGlobal(float *out, const float2 *table, int width, int height, int count)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    out[y * width + x] = 0.0f;
    for (int k = 0; k < count; k++) {
        float dx = x - table[k].x, dy = y - table[k].y;
        out[y * width + x] += dx * dx + dy * dy;
    }
}

__global__ void fieldConstant(float *out, int width, int height, int count)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float sum = 0.0f;
        for (int k = 0; k < count; k++) {
            float dx = x - vectors[k].x, dy = y - vectors[k].y;
            sum += dx * dx + dy * dy;
        }
        out[y * width + x] = sum;
    }
}

static int wrongPoints(const float *field, const float2 *table, int width, int height)
{
    int wrong = 0;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            double sum = 0;
            for (int k = 0; k < VECTORS; k++) {
                double dx = x - table[k].x, dy = y - table[k].y;
                sum += dx * dx + dy * dy;
            }
            wrong += fabs(field[y * width + x] - sum) > 1e-4 * sum;
        }
    return wrong;
}

int main(int argc, char *argv[])
{
    int width = argc > 2 ? atoi(argv[1]) : 100, height = argc > 2 ? atoi(argv[2]) : 75;
    size_t bytes = sizeof(float) * width * height;
    float2 table[VECTORS];
    for (int k = 0; k < VECTORS; k++)
        table[k] = make_float2(1.5f * k, 30.0f - k);

    float *d_field, *h_field = (float *)malloc(bytes);
    float2 *d_table;
    check(cudaMalloc((void **)&d_field, bytes), "cudaMalloc");
    check(cudaMalloc((void **)&d_table, sizeof(table)), "cudaMalloc");
    check(cudaMemcpy(d_table, table, sizeof(table), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpyToSymbol(vectors, table, sizeof(table)), "cudaMemcpyToSymbol");

    dim3 block(TILE_X, TILE_Y);
    dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&stop), "cudaEventCreate");
    float ms[2];
    int wrong[2];
    for (int variant = 0; variant < 2; variant++) {
        check(cudaMemset(d_field, 0xff, bytes), "cudaMemset");
        check(cudaEventRecord(start, 0), "cudaEventRecord");
        if (variant == 0)
            fieldGlobal<<<grid, block>>>(d_field, d_table, width, height, VECTORS);
        else
            fieldConstant<<<grid, block>>>(d_field, width, height, VECTORS);
        check(cudaEventRecord(stop, 0), "cudaEventRecord");
        check(cudaEventSynchronize(stop), "cudaEventSynchronize");
        check(cudaEventElapsedTime(&ms[variant], start, stop), "cudaEventElapsedTime");
        check(cudaMemcpy(h_field, d_field, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        wrong[variant] = wrongPoints(h_field, table, width, height);
        printf("%s memory: %d wrong points\n", variant ? "constant" : "global", wrong[variant]);
    }
    printf("constant memory is faster: %s\n", ms[1] < ms[0] ? "yes" : "no");

    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaFree(d_field);
    cudaFree(d_table);
    free(h_field);
    puts(wrong[0] || wrong[1] ? "FAILED" : "PASSED");
    return wrong[0] || wrong[1];
}

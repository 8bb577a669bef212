// Calls on memory; prints the lines that failed.
#include "expect.h"
#include <cstdlib>

__global__ void add_one(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += 1;
}
__global__ void add_rows(const char *rows, size_t pitch, int width, int height, int *sum)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            *sum += rows[y * pitch + x];
}

__constant__ int factor[2];
__device__ int counter = 5;
__managed__ int shared_counter = 7;
__global__ void use_variables(int *out) { *out = factor[0] * 100 + factor[1] * 10 + counter; counter = 9; shared_counter++; }

void managed_and_pinned()
{
    int *managed, *pinned, *mapped;
    OK(cudaMallocManaged(&managed, 400));
    OK(cudaMallocHost(&pinned, 400));
    OK(cudaHostAlloc(&mapped, 400, cudaHostAllocMapped));
    for (int i = 0; i < 100; i++)
        managed[i] = pinned[i] = mapped[i] = i;
    int *device;
    OK(cudaHostGetDevicePointer(&device, mapped, 0));
    for (int *data : {managed, pinned, device})
        add_one<<<1, 128>>>(data, 100);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 100; i++)
        EXPECT(managed[i] == i + 1 && pinned[i] == i + 1 && mapped[i] == i + 1);
    OK(cudaMemPrefetchAsync(managed, 400, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
    cudaPointerAttributes found;
    OK(cudaPointerGetAttributes(&found, managed));
    EXPECT(found.type == cudaMemoryTypeManaged && found.devicePointer == managed);
    OK(cudaPointerGetAttributes(&found, pinned));
    EXPECT(found.type == cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&found, &found));
    EXPECT(found.type == cudaMemoryTypeUnregistered);
    OK(cudaPointerGetAttributes(&found, &shared_counter));
    EXPECT(found.type == cudaMemoryTypeManaged);
    FAILS(cudaHostGetDevicePointer(&device, &found, 0), cudaErrorInvalidValue);
    FAILS(cudaFree(pinned), cudaErrorInvalidValue);
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(mapped));
}

void registered()
{
    int *host = (int *)malloc(1 << 20);
    for (int i = 0; i < 1 << 18; i++)
        host[i] = i;
    OK(cudaHostRegister(host + 10, 4000, cudaHostRegisterDefault));
    int *later;  // device memory stands below the host's
    OK(cudaMalloc(&later, 4000));
    FAILS(cudaHostRegister(later + (1 << 30), 4000, cudaHostRegisterDefault), cudaErrorInvalidValue);
    add_one<<<8, 128>>>(host + 10, 1000);
    OK(cudaMemcpy(later, host + 10, 4000, cudaMemcpyDefault));
    for (int i = 0; i < 1 << 18; i++)
        EXPECT(host[i] == i + (i >= 10 && i < 1010));
    OK(cudaFree(later));
    OK(cudaHostUnregister(host + 10));
    FAILS(cudaHostUnregister(host + 10), cudaErrorHostMemoryNotRegistered);
    host[20] = 3;
    EXPECT(host[20] == 3);
    free(host);
}

void pitched()
{
    const int width = 70, height = 5;
    char host[height][100] = {}, back[height][90] = {};
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            host[y][x] = (char)(y + x % 7);
    char *rows;
    size_t pitch;
    int *sum, result = 0, expected = 0;
    OK(cudaMallocPitch(&rows, &pitch, width, height));
    EXPECT(pitch >= width && pitch % 512 == 0);
    OK(cudaMalloc(&sum, 4));
    OK(cudaMemset(sum, 0, 4));
    OK(cudaMemcpy2D(rows, pitch, host, 100, width, height, cudaMemcpyHostToDevice));
    add_rows<<<1, 1>>>(rows, pitch, width, height, sum);
    OK(cudaMemcpy(&result, sum, 4, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy2D(back, 90, rows, pitch, width, height, cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            expected += host[y][x];
            EXPECT(back[y][x] == host[y][x]);
        }
    EXPECT(result == expected);
    OK(cudaMemset2D(rows, pitch, 3, width, height));
    OK(cudaMemcpy2D(back, 90, rows, pitch, width, height, cudaMemcpyDeviceToHost));
    EXPECT(back[height - 1][width - 1] == 3 && back[0][width] == 0);
    FAILS(cudaMemcpy2D(back, 60, rows, pitch, width, height, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
    OK(cudaFree(rows));
    OK(cudaFree(sum));
}

void boxes()
{
    const cudaExtent extent = make_cudaExtent(12, 3, 4);
    char host[4][3][12], back[4][3][12] = {};
    for (int i = 0; i < 144; i++)
        (&host[0][0][0])[i] = (char)i;
    cudaPitchedPtr device;
    OK(cudaMalloc3D(&device, extent));
    cudaMemcpy3DParms to = {}, from = {};
    to.srcPtr = make_cudaPitchedPtr(host, 12, 12, 3);
    to.dstPtr = device;
    to.extent = extent;
    to.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&to));
    from.srcPtr = device;
    from.srcPos = make_cudaPos(4, 1, 2);
    from.dstPtr = make_cudaPitchedPtr(back, 12, 12, 3);
    from.extent = make_cudaExtent(8, 2, 2);
    from.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&from));
    EXPECT(back[0][0][0] == host[2][1][4] && back[1][1][7] == host[3][2][11]);
    OK(cudaMemset3D(device, 1, extent));
    OK(cudaMemcpy3D(&from));
    EXPECT(back[1][1][7] == 1);
    OK(cudaFree(device.ptr));
}

void symbols()
{
    int values[2] = {1, 2}, *out, result, *address;
    size_t size;
    OK(cudaMalloc(&out, 4));
    OK(cudaMemcpyToSymbol(factor, values, 8));
    OK(cudaMemcpyToSymbol(factor, values, 4, 4));
    use_variables<<<1, 1>>>(out);
    OK(cudaMemcpy(&result, out, 4, cudaMemcpyDeviceToHost));
    EXPECT(result == 115);
    OK(cudaMemcpyFromSymbol(&result, counter, 4));
    EXPECT(result == 9 && shared_counter == 8);
    OK(cudaGetSymbolSize(&size, factor));
    OK(cudaGetSymbolAddress((void **)&address, factor));
    OK(cudaMemcpy(&result, address + 1, 4, cudaMemcpyDeviceToHost));
    EXPECT(size == 8 && result == 1);
    FAILS(cudaMemcpyToSymbol(factor, values, 8, 4), cudaErrorInvalidValue);
    FAILS(cudaMemcpyToSymbol(values, values, 4), cudaErrorInvalidSymbol);
    OK(cudaFree(out));
}

void copies()
{
    int *a, *b, host[100], back[100], plain[100] = {};
    for (int i = 0; i < 100; i++)
        host[i] = i;
    OK(cudaMallocAsync(&a, 400, 0));
    OK(cudaMalloc(&b, 400));
    OK(cudaMemcpy(a, host, 400, cudaMemcpyDefault));
    OK(cudaMemcpy(b + 50, a, 200, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(b, b + 50, 200, cudaMemcpyDefault));
    OK(cudaMemcpyAsync(back, b, 400, cudaMemcpyDefault, 0));
    OK(cudaMemcpy(plain, host, 400, cudaMemcpyHostToHost));
    for (int i = 0; i < 100; i++)
        EXPECT(back[i] == i % 50 && plain[i] == i);
    FAILS(cudaMemcpy(host, plain, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(a, host, 404, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpy((char *)a + 399, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(a, b, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(a, (void *)8, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpy(a, host, 4, (cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    OK(cudaFreeAsync(a, 0));
    FAILS(cudaFree(a), cudaErrorInvalidValue);
    FAILS(cudaFree(b + 1), cudaErrorInvalidValue);
    OK(cudaFree(b));
    OK(cudaFree(nullptr));
    size_t available, total, later;
    OK(cudaMemGetInfo(&available, &total));
    OK(cudaMalloc(&a, 1 << 20));
    OK(cudaMemGetInfo(&later, &total));
    EXPECT(later + (1 << 20) == available && available < total);
    FAILS(cudaMalloc(&b, 1ul << 45), cudaErrorMemoryAllocation);
    OK(cudaFree(a));
}

int main()
{
    managed_and_pinned();
    registered();
    pitched();
    boxes();
    symbols();
    copies();
    return finished();
}

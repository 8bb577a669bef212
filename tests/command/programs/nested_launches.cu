// Kernels that launch kernels, and other calls of the runtime library by kernels.
#include "expect.h"

struct Wide {
    char small;
    double values[3];
};

__global__ void add(char by, int *data, Wide wide) { atomicAdd(data + blockIdx.x, by + (int)wide.values[2] + wide.small); }

__global__ void tree(int *data, int depth)
{
    atomicAdd(data, 1);
    if (depth == 0)
        return;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    tree<<<1, 2, 0, stream>>>(data, depth - 1);
    cudaStreamDestroy(stream);
}

__global__ void parent(int *data)
{
    extern __shared__ int own[];
    own[0] = 5;
    Wide wide = {1, {0, 0, 30}};
    add<<<dim3(4, 1, 1), dim3(2, 3)>>>(2, data, wide);
    if (cudaGetLastError() != cudaSuccess)
        data[0] = -1;
}

__global__ void endless(int *depth)
{
    *depth += 1;
    endless<<<1, 1>>>(depth);
}

__global__ void too_many(int *data)
{
    for (int i = 0; i < 5; i++)
        add<<<1, 1>>>(1, data, Wide{});
}

__global__ void too_wide(int *data) { add<<<1, 2000>>>(1, data, Wide{}); }

__global__ void calls_everything(int *data)
{
    int device = -1, devices = 0, version = 0, sms = 0, *own = nullptr;
    cudaGetDevice(&device);
    cudaGetDeviceCount(&devices);
    cudaRuntimeGetVersion(&version);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    bool right = device == 0 && devices == 1 && version == 6000 && sms > 100;
    right = right && cudaMalloc(&own, sizeof(int)) == cudaSuccess && cudaMalloc(&own, 1 << 30) != cudaSuccess;
    data[0] = right;
    // in the order of their launches: data[1], data[2] are 2, 0, then 2, 2, then 8, 2, then 8, 0
    add<<<1, 1>>>(1, data + 1, Wide{});
    cudaMemcpyAsync(data + 2, data + 1, sizeof(int), cudaMemcpyDeviceToDevice, 0);
    add<<<1, 1>>>(6, data + 1, Wide{});
    cudaMemset2DAsync(data + 2, 8, 0, 4, 1, 0);
}

__global__ void allocate(int **where, int bytes)
{
    *where = (int *)malloc(bytes);
    if (*where)
        **where = 7;
}
__global__ void release(int **where, int *value)
{
    *value = **where;
    free(*where);
}

// Memory that a kernel allocates stays until a kernel frees it; the heap's size is set before.
void kernels_share_a_heap(int *data, int *found)
{
    int **where;
    OK(cudaMalloc(&where, sizeof(int *)));
    allocate<<<1, 1>>>(where, 4);
    release<<<1, 1>>>(where, data);
    OK(cudaMemcpy(found, data, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 7);
    int *address;
    for (int large = 0; large < 2; large++) {
        allocate<<<1, 1>>>(where, large ? 80 << 20 : 12 << 20);
        OK(cudaMemcpy(&address, where, sizeof address, cudaMemcpyDeviceToHost));
        EXPECT((address == nullptr) == large);
    }
    FAILS(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20), cudaErrorInvalidValue);
    OK(cudaFree(where));
}

int main()
{
    int *data, found[4];
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    OK(cudaMalloc(&data, sizeof found));
    OK(cudaMemset(data, 0, sizeof found));
    parent<<<1, 1, 16>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    for (int each : found)
        EXPECT(each == 6 * (2 + 30 + 1));
    OK(cudaMemset(data, 0, sizeof found));
    tree<<<1, 2>>>(data, 3);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 2 + 4 + 8 + 16);
    OK(cudaMemset(data, 0, sizeof found));
    endless<<<1, 1>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 2049);
    OK(cudaMemset(data, 0, sizeof found));
    too_many<<<1, 500>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 2048);
    int one[4] = {0, 1, 0, 5};
    OK(cudaMemcpy(data, one, sizeof one, cudaMemcpyHostToDevice));
    calls_everything<<<1, 1>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 1 && found[1] == 8 && found[2] == 0 && found[3] == 5);
    kernels_share_a_heap(data, found);
    too_wide<<<1, 1>>>(data);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(data));
    return finished();
}

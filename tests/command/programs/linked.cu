// Built with -rdc=true and linked_more.cu: device functions and variables of one file are used in another.
#include "linked.h"

__managed__ int calls = 5;
static __device__ int own = 1;  // each file has its own

static __device__ int step(int value) { return value + own; }

__global__ void use(int *data)
{
    data[threadIdx.x] = apply(operations[threadIdx.x], step(threadIdx.x)) + factors[threadIdx.x] + offset;
    atomicAdd(&calls, 1);
}

int main()
{
    int *data, found[2], one = 10, both[2] = {1000, 2000};
    OK(cudaMalloc(&data, sizeof found));
    OK(cudaMemcpyToSymbol(own, &one, sizeof one));
    OK(cudaMemcpyToSymbol(factors, both, sizeof both));
    use<<<1, 2>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 103 + 1000 + 7 && found[1] == 17 + 2000 + 7);
    EXPECT(calls == 7);
    fill<3><<<1, 2>>>(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 5);
    fill_and_add(data);
    OK(cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT(found[0] == 4 + 2 + 3 && found[1] == 4 + 2 + 3 + 2);
    OK(cudaFree(data));
    return finished();
}

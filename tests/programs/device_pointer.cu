// Reads an array of the device in a function of the host.
#include <iostream>

__global__ void square(int *values)
{
    values[threadIdx.x] = threadIdx.x * threadIdx.x;
}

int main()
{
    int *values;
    cudaMalloc(&values, 32 * sizeof(int));
    square<<<1, 32>>>(values);
    cudaDeviceSynchronize();
    std::cout << "the squares are computed" << std::endl;
    std::cout << values[5] << std::endl;  // cudaMemcpy is missing
    cudaFree(values);
    return 0;
}

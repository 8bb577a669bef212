// Reads numbers from the standard input, scales them on the device, and writes them into a file and to the output.
// Usage: files_and_stdin FACTOR FILE < NUMBERS
// The exit code is the count of numbers; an error message goes to the standard error.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

__global__ void scale(double *numbers, double factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        numbers[i] *= factor;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "two arguments are needed, not " << argc - 1 << std::endl;
        std::exit(200);
    }
    std::vector<double> numbers;
    for (double number; std::cin >> number;)
        numbers.push_back(number);
    const int n = static_cast<int>(numbers.size()), bytes = n * sizeof(double);

    double *device;
    cudaMalloc(&device, bytes);
    cudaMemcpy(device, numbers.data(), bytes, cudaMemcpyHostToDevice);
    scale<<<(n + 31) / 32, 32>>>(device, std::atof(argv[1]), n);
    cudaMemcpy(numbers.data(), device, bytes, cudaMemcpyDeviceToHost);
    cudaFree(device);

    std::ofstream file(argv[2]);
    for (double number : numbers) {
        std::cout << number << '\n';
        file << number << '\n';
    }
    return n;
}

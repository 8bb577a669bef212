// Never ends: with "host" as its argument in a loop of the host, with "device" in a kernel.
#include <cstdio>
#include <cstring>

__global__ void spin(volatile int *flag)
{
    while (*flag == 0) {
    }
}

int main(int argc, char **argv)
{
    std::printf("started\n");
    std::fflush(stdout);
    if (argc > 1 && std::strcmp(argv[1], "device") == 0) {
        int *flag;
        cudaMalloc((void **)&flag, sizeof(int));
        cudaMemset(flag, 0, sizeof(int));
        spin<<<1, 1>>>(flag);
        std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 1;
    }
    for (volatile int i = 0;; i = i + 1) {
    }
}

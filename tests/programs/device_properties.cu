// Print what the runtime says of each device, and check that its answers agree with one another.
#include <cstring>
#include <iostream>

int main()
{
    int devices = 0, driver = 0, runtime = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        std::cerr << "no CUDA device" << std::endl;
        return 1;
    }
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    std::cout << "devices: " << devices << std::endl;
    std::cout << "versions: driver " << driver / 1000 << ", runtime " << runtime / 1000 << std::endl;

    bool right = driver >= runtime;
    for (int device = 0; device < devices; ++device) {
        cudaDeviceProp properties;
        right = cudaSetDevice(device) == cudaSuccess && right;
        right = cudaGetDeviceProperties(&properties, device) == cudaSuccess && right;
        int current = -1, warp = 0, processors = 0, clock = 0, shared = 0, most = 0;
        cudaGetDevice(&current);
        cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device);
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlock, device);
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerBlock, device);
        size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);

        std::cout << "device " << device << ": " << properties.name << std::endl;
        std::cout << "  compute capability: " << properties.major << "." << properties.minor << std::endl;
        std::cout << "  multiprocessors: " << processors << std::endl;
        std::cout << "  warp size: " << properties.warpSize << std::endl;
        std::cout << "  shared memory per block: " << properties.sharedMemPerBlock << " bytes" << std::endl;
        std::cout << "  constant memory: " << properties.totalConstMem << " bytes" << std::endl;
        std::cout << "  threads per block: " << properties.maxThreadsPerBlock << std::endl;
        std::cout << "  block: " << properties.maxThreadsDim[0] << " x " << properties.maxThreadsDim[1] << " x "
                  << properties.maxThreadsDim[2] << std::endl;
        std::cout << "  grid: " << properties.maxGridSize[0] << " x " << properties.maxGridSize[1] << " x "
                  << properties.maxGridSize[2] << std::endl;
        std::cout << "  global memory: " << (properties.totalGlobalMem >> 30) << " GiB" << std::endl;

        right = right && std::strlen(properties.name) > 0 && current == device && clock > 0;
        right = right && warp == properties.warpSize && processors == properties.multiProcessorCount;
        right = right && shared == static_cast<int>(properties.sharedMemPerBlock);
        right = right && most == properties.maxThreadsPerBlock && free <= total && total <= properties.totalGlobalMem;
    }
    right = right && cudaSetDevice(devices) == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice;
    std::cout << (right ? "PASSED" : "FAILED") << std::endl;
    return right ? 0 : 1;
}

// $title: write the kernel, then delete the GPULAB_TODO line. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO($name)

GPULAB_TUNABLE(BLOCK_SIZE, 256)  // threads per block: 32, 64, 128, 256, 512 or 1024

__global__ void $name(const int *in, int *out, int n)
{
    // Add all elements to out[0], which is 0 before the launch.
}

// Histogram: write the kernel, then delete the GPULAB_TODO line. README.md in this folder has the task.
#include <gpulab.cuh>

GPULAB_TODO(histogram)

GPULAB_TUNABLE(BLOCK_SIZE, 256)  // threads per block: 32, 64, 128, 256, 512 or 1024

__global__ void histogram(const unsigned char *in, unsigned *out, int n)
{
    // Add to out[value], 0 before the launch, the number of elements of that value.
}

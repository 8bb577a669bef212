// Wrong: each block announces its prefix with its number plus 1, but the flag is stored through a variable of 8 bits:
// block 255 announces itself with a 0, and block 256 waits for ever.
#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 32)
GPULAB_TUNABLE(INCLUSIVE, 1)
GPULAB_TUNABLE(SINGLE_PASS, 1)

__global__ void scan_single_pass(const float *in, float *out, unsigned *ticket, unsigned long long *status,
                                 float *aggregates, float *prefixes, unsigned n)
{
    __shared__ unsigned my_ticket;
    unsigned lane = threadIdx.x;
    if (lane == 0)
        my_ticket = atomicAdd(ticket, 1);
    __syncthreads();
    unsigned tile = my_ticket;
    unsigned i = tile * BLOCK_SIZE + lane;
    float sum = i < n ? in[i] : 0;
    for (unsigned step = 1; step < 32; step *= 2) {
        float left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += left;
    }
    float before = 0;
    if (tile > 0) {
        while (((volatile unsigned long long *)status)[tile - 1] != tile) {
        }
        __threadfence();
        before = ((volatile float *)prefixes)[tile - 1];
    }
    if (lane == 31) {
        unsigned char flag = tile + 1;
        prefixes[tile] = before + sum;
        __threadfence();
        ((volatile unsigned long long *)status)[tile] = flag;
    }
    if (i < n)
        out[i] = before + sum;
}

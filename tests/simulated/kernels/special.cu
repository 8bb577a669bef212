// Special registers in three dimensions. One row of `out` for each PUT, in the order of linear block and thread.
typedef unsigned u32;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);
#define READ(text) ([&] { u32 d; asm volatile("mov.u32 %0, %%" text ";" : "=r"(d)); return d; }())

extern "C" __global__ void indices(u32 *out, int n) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int i = block * (blockDim.x * blockDim.y * blockDim.z) + thread, row = 0;
    PUT(tid_x, threadIdx.x)
    PUT(tid_y, threadIdx.y)
    PUT(tid_z, threadIdx.z)
    PUT(ntid_x, blockDim.x)
    PUT(ntid_y, blockDim.y)
    PUT(ntid_z, blockDim.z)
    PUT(ctaid_x, blockIdx.x)
    PUT(ctaid_y, blockIdx.y)
    PUT(ctaid_z, blockIdx.z)
    PUT(nctaid_x, gridDim.x)
    PUT(nctaid_y, gridDim.y)
    PUT(nctaid_z, gridDim.z)
    PUT(laneid, READ("laneid"))
    PUT(lanemask_eq, READ("lanemask_eq"))
    PUT(lanemask_lt, READ("lanemask_lt"))
    PUT(lanemask_le, READ("lanemask_le"))
    PUT(lanemask_gt, READ("lanemask_gt"))
    PUT(lanemask_ge, READ("lanemask_ge"))
    PUT(warp_size, warpSize)
    PUT(dynamic_smem_size, READ("dynamic_smem_size"))
    PUT(warpid_in_range, READ("warpid") < READ("nwarpid"))
    PUT(smid_in_range, READ("smid") < READ("nsmid"))
}

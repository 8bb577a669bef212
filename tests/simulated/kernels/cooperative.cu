// Cooperative groups within a block. One row of `out` for each PUT.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
typedef unsigned u32;
#define PUT(name, value) out[row++ * n + i] = (u32)(value);

extern "C" __global__ void groups(const u32 *data, u32 *out, int n) {
    __shared__ u32 tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    u32 x = data[i];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> eight = cg::tiled_partition<8>(warp);
    tile[block.thread_rank()] = x;
    block.sync();
    PUT(block_neighbour, tile[(block.thread_rank() + 1) % block.size()])
    PUT(warp_rank, warp.thread_rank() * 100 + warp.meta_group_rank())
    PUT(warp_shfl, warp.shfl(x, 5))
    PUT(warp_down, warp.shfl_down(x, 3))
    PUT(warp_any, warp.any(x & 1) * 2 + warp.all(x | 1))
    PUT(warp_ballot, warp.ballot(x & 1))
    PUT(eight_rank, eight.thread_rank() * 100 + eight.meta_group_rank())
    PUT(eight_up, eight.shfl_up(x, 2))
    PUT(eight_xor, eight.shfl_xor(x, 3))
    PUT(eight_ballot, eight.ballot(x & 1))
    PUT(eight_match, eight.match_any(x & 1))
    u32 sum = x;
    for (int step = eight.size() / 2; step; step >>= 1) sum += eight.shfl_down(sum, step);
    PUT(eight_sum, eight.shfl(sum, 0))
    PUT(reduce_warp, cg::reduce(warp, x, cg::plus<u32>()))
    PUT(reduce_eight, cg::reduce(eight, x, cg::greater<u32>()))
    PUT(scan_warp, cg::inclusive_scan(warp, x))
    PUT(scan_eight, cg::exclusive_scan(eight, x))
    eight.sync();
    u32 part = 0;
    if (x & 1) {
        cg::coalesced_group together = cg::coalesced_threads();
        part = together.thread_rank() * 1000 + together.size() * 10 + (together.shfl(x, 0) & 7);
        together.sync();
    }
    PUT(coalesced, part)
    cg::sync(warp);
    PUT(group_index, block.group_index().x * 10 + block.thread_index().x)
}

// Honest: Barriers that count and vote, a chain of conditionals, hardly a space.
#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 512)
GPULAB_TUNABLE(ITEMS_PER_THREAD, 1)

__global__ void reduce(const GPULAB_T*in,GPULAB_T*out,unsigned n){__shared__ GPULAB_T s[512];unsigned t=threadIdx.x,i=blockIdx.x*512+t;
s[t]=i<n?in[i]:GPULAB_T(GPULAB_IDENTITY);int live=__syncthreads_count(i<n);
for(int k=live>256?256:live>128?128:live>64?64:live>32?32:live>16?16:live>8?8:live>4?4:live>2?2:live>1?1:0;k;k/=2){if(t<k)s[t]=GPULAB_OP(s[t],s[t+k]);if(!__syncthreads_or(k>1))break;}
t?(void)0:(void)(out[blockIdx.x]=s[0]);}

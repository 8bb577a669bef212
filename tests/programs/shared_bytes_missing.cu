// Launches a kernel with an `extern __shared__` array, but without bytes for it.
__global__ void keep(int *out)
{
    extern __shared__ int tile[];
    tile[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = tile[threadIdx.x];
}

int main()
{
    int *out;
    cudaMalloc(&out, 32 * sizeof(int));
    keep<<<1, 32>>>(out);
    cudaFree(out);
}

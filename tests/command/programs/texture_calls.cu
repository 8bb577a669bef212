// CUDA arrays, textures and surfaces; prints the lines that failed.
#include "expect.h"
#include <vector>

constexpr int WIDTH = 32, HEIGHT = 4;

__global__ void fetch(cudaTextureObject_t texture, float *out)
{
    out[blockIdx.x * WIDTH + threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}
__global__ void fetch_linear(cudaTextureObject_t texture, int *out) { out[threadIdx.x] = tex1Dfetch<int>(texture, threadIdx.x); }
__global__ void store(cudaSurfaceObject_t surface) { surf2Dwrite(threadIdx.x * 1.5f, surface, threadIdx.x * 4, blockIdx.x); }

std::vector<float> numbers(WIDTH *HEIGHT), back(WIDTH *HEIGHT);
cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();

cudaTextureObject_t texture_of(const cudaResourceDesc &source, cudaTextureAddressMode mode = cudaAddressModeClamp)
{
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = mode;
    cudaTextureObject_t texture = 0;
    OK(cudaCreateTextureObject(&texture, &source, &how, nullptr));
    return texture;
}

void arrays(float *device)
{
    cudaArray_t array;
    OK(cudaMallocArray(&array, &floats, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    OK(cudaMemcpyToArray(array, 0, 0, numbers.data(), WIDTH * HEIGHT * 4, cudaMemcpyHostToDevice));
    std::vector<float> whole(WIDTH * HEIGHT);
    OK(cudaMemcpyFromArray(whole.data(), array, 0, 0, WIDTH * HEIGHT * 4, cudaMemcpyDeviceToHost));
    EXPECT(!memcmp(whole.data(), numbers.data(), WIDTH * HEIGHT * 4));
    OK(cudaMemset(device, 0, WIDTH * HEIGHT * 4));
    OK(cudaMemcpy2DToArray(array, 0, 0, numbers.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    cudaResourceDesc source = {};
    source.resType = cudaResourceTypeArray;
    source.res.array.array = array;
    cudaTextureObject_t texture = texture_of(source);
    fetch<<<HEIGHT, WIDTH>>>(texture, device);
    OK(cudaMemcpy(back.data(), device, WIDTH * HEIGHT * 4, cudaMemcpyDeviceToHost));
    EXPECT(back == numbers);
    cudaSurfaceObject_t surface;
    OK(cudaCreateSurfaceObject(&surface, &source));
    store<<<HEIGHT, WIDTH>>>(surface);
    OK(cudaMemcpy2DFromArray(back.data(), WIDTH * 4, array, 0, 0, WIDTH * 4, HEIGHT, cudaMemcpyDeviceToHost));
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        EXPECT(back[i] == i % WIDTH * 1.5f);
    cudaExtent extent;
    cudaChannelFormatDesc format;
    OK(cudaArrayGetInfo(&format, &extent, nullptr, array));
    EXPECT(extent.width == WIDTH && extent.height == HEIGHT && format.x == 32 && format.f == cudaChannelFormatKindFloat);
    OK(cudaDestroyTextureObject(texture));
    FAILS(cudaDestroyTextureObject(texture), cudaErrorInvalidResourceHandle);
    OK(cudaDestroySurfaceObject(surface));
    OK(cudaFreeArray(array));
    FAILS(cudaFreeArray(array), cudaErrorInvalidResourceHandle);
}

void rows(float *device)
{
    cudaResourceDesc source = {};
    float *pitched;
    size_t pitch;
    OK(cudaMallocPitch(&pitched, &pitch, WIDTH * 4, HEIGHT));
    OK(cudaMemcpy2D(pitched, pitch, numbers.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    source.resType = cudaResourceTypePitch2D;
    source.res.pitch2D = {pitched, floats, WIDTH, HEIGHT, pitch};
    cudaTextureObject_t texture = texture_of(source);
    fetch<<<HEIGHT, WIDTH>>>(texture, device);
    OK(cudaMemcpy(back.data(), device, WIDTH * HEIGHT * 4, cudaMemcpyDeviceToHost));
    EXPECT(back == numbers);
    OK(cudaFree(pitched));
}

void linear()
{
    int *device, *out, host[WIDTH];
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMalloc(&out, sizeof host));
    for (int i = 0; i < WIDTH; i++)
        host[i] = i * i;
    OK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    cudaResourceDesc source = {};
    source.resType = cudaResourceTypeLinear;
    source.res.linear = {device, cudaCreateChannelDesc<int>(), sizeof host};
    fetch_linear<<<1, WIDTH>>>(texture_of(source), out);
    OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < WIDTH; i++)
        EXPECT(host[i] == i * i);
    OK(cudaFree(device));
    OK(cudaFree(out));
}

void volumes()
{
    cudaExtent extent = make_cudaExtent(8, 4, 2);
    cudaArray_t array;
    OK(cudaMalloc3DArray(&array, &floats, extent));
    cudaMemcpy3DParms to = {}, from = {};
    to.srcPtr = make_cudaPitchedPtr(numbers.data(), 32, 8, 4);
    to.dstArray = array;
    to.extent = extent;
    to.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&to));
    from.srcArray = array;
    from.srcPos = make_cudaPos(2, 1, 1);
    from.dstPtr = make_cudaPitchedPtr(back.data(), 32, 8, 4);
    from.extent = make_cudaExtent(6, 3, 1);
    from.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&from));
    EXPECT(back[0] == numbers[32 + 8 + 2] && back[2 * 8 + 5] == numbers[32 + 3 * 8 + 7]);
    OK(cudaFreeArray(array));
}

int main()
{
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        numbers[i] = i;
    float *device;
    OK(cudaMalloc(&device, WIDTH * HEIGHT * 4));
    arrays(device);
    rows(device);
    linear();
    volumes();
    OK(cudaFree(device));
    return finished();
}

// Ends in the way that its first argument names.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

__global__ void fill(int *out) { out[threadIdx.x] = threadIdx.x; }
__global__ void store(int *out) { *out = 1; }
__global__ void wait_for(volatile int *flag)
{
    while (flag[0] == 0)
        ;
}
__global__ void long_loop(int *out, long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i * i ^ out[i & 3];
    out[0] = sum;
}

const char *how;
int *volatile nowhere = nullptr;
bool is(const char *name) { return !strcmp(how, name); }
void check() { printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize())); }

int main(int argc, char **argv)
{
    how = argv[1];
    int *device, host = 0;
    cudaMalloc(&device, 128);
    fill<<<1, 32>>>(device);
    printf("launched\n");
    fflush(stdout);
    if (is("null"))
        *nowhere = 1;
    if (is("abort"))
        abort();
    if (is("exit"))
        exit(5);
    if (is("dereference"))
        printf("%d\n", device[1]);
    if (is("use after free")) {
        cudaFree(device);
        printf("%d\n", device[1]);
    }
    if (is("sleep"))
        sleep(1000);
    if (is("child") && fork() == 0)
        sleep(1000);
    if (is("child"))
        sleep(1000);
    if (is("interrupt"))
        raise(SIGINT);
    if (is("wait")) {
        cudaMemset(device, 0, 4);
        wait_for<<<1, 1>>>(device);
        check();
    }
    if (is("long")) {
        long_loop<<<1, 1>>>(device, 1L << 40);
        check();
    }
    if (is("large")) {
        fill<<<1 << 27, 32>>>(device);
        check();
    }
    if (is("host pointer")) {
        store<<<1, 1>>>(&host);
        check();
    }
    if (is("null pointer")) {
        store<<<1, 1>>>(nullptr);
        check();
    }
    if (is("missing")) {
        cudaIpcMemHandle_t handle;
        cudaIpcGetMemHandle(&handle, device);
    }
    if (is("socket"))
        for (int file = 3; file < 20; file++)
            if (write(file, "a request of its own making", 27) > 0)
                sleep(5);
    if (is("cat"))
        for (char line[80]; fgets(line, sizeof line, stdin);)
            printf("read %s", line);
    cudaFree(device);
    return 0;
}

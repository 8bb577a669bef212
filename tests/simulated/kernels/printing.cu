// What printf prints, from one thread, so that the order is certain.
#include <cstdio>

extern "C" __global__ void prints(const int *data, int n) {
    if (threadIdx.x != 5) return;
    printf("plain text\n");
    printf("%d %i %u %x %X %o %c %%\n", data[0], -7, 7u, 255, 255, 8, 'A');
    printf("[%5d] [%-5d] [%05d] [%+d] [% d] [%#x] [%.3d]\n", 42, 42, 42, 42, 42, 42, 42);
    printf("%lld %llu %llx %ld\n", -5000000000ll, 18446744073709551615ull, 1ull << 40, 99l);
    printf("%f %e %g %.2f %10.3f [%-9.1e] %G %F\n", 1.5, 12345.678, 0.0001, 2.0f / 3, -3.14159, 9.99e10, 1e-20, 0.1);
    printf("%f %f %f %e\n", 1.0 / 0.0 * data[1], -1.0 / 0.0, 0.0 * (1.0 / 0.0), -0.0);
    printf("%s and [%8s] [%-8s] [%.2s]\n", "string", "right", "left", "cut");
    printf("%*d [%-*d]\n", 6, 42, 4, 7);
    printf("no newline at the end: ");
    for (int k = 0; k < 3; ++k) printf("%d;", k * data[2]);
    printf("\n");
    printf("%a %p\n", 1.0, (void *)0);
}

// Replacement of libstdc++'s header of this name, for nvcc, which includes <cmath> before every file. The special
// functions of C++17 (Bessel and others) and their headers take a fifth of nvcc's time for a kernel, and device code
// cannot call them. A file that does not compile without them is compiled with them.

// In place of libstdc++'s header of this name, for nvcc alone, which reads <cmath> before every file: Bessel functions
// and their kin, which C++17 put into it, and the headers that they need take a fifth of nvcc's time for a kernel. No
// device code can call them. A file that does not compile without them is compiled with them.

// In place of libstdc++'s header of this name, for nvcc alone, which reads <cmath> before every file: Bessel functions
// and their kin, which C++17 put into it, take a seventh of the time that it needs for a kernel. No device code can
// call them. A file that does not compile without them is compiled with them.
#pragma once
#include <bits/stl_algobase.h>
#include <limits>
#include <type_traits>

// Replacement of libstdc++'s header of this name, for whole programs: the special functions of C++17 (Bessel and others)
// take a sixth of a build. A program that names one is built with them. The headers below are those that libstdc++'s
// header includes; programs may rely on their names.
#include <bits/stl_algobase.h>
#include <limits>
#include <type_traits>

// paths.cuh: the eight paths that elements take. Include it next to gpulab.cuh:
//     #include "paths.cuh"
// Each path is 64 rounds of arithmetic that the compiler cannot replace by a select. Use them as they are: results are
// compared bit for bit. (Every factor of a sum is a power of two, so a fused multiply-add gives the same bits.)
#ifndef PATHS_CUH
#define PATHS_CUH

constexpr int ROUNDS = 64;

// This is sqrtf, rounded to nearest. The compiler accepts another definition of that name, but not of an instruction.
__device__ inline float square_root(float x)
{
    float root;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
}

#define PATH(name, next)               \
    __device__ inline float name(float x) \
    {                                  \
        _Pragma("unroll 4")            \
        for (int k = 0; k < ROUNDS; ++k) \
            x = next;                  \
        return x;                      \
    }

PATH(path0, (x + 0.03125f) / (1.0f + 0.0009765625f * x))
PATH(path1, square_root(x * (x + 0.25f)))
PATH(path2, x * (64.0f + x) / (65.0f + x))
PATH(path3, x / (1.0f + 0.015625f * x))
PATH(path4, square_root(x * (x + 1.0f)))
PATH(path5, square_root(x * (x - 0.00390625f)))
PATH(path6, x * (65.0f + x) / (64.0f + x))
PATH(path7, x * (8.0f + x) / (8.125f + x))

#undef PATH

// Send x down path number `which`, 0 to 7. Lanes of one warp with different numbers wait for each other.
__device__ inline float take_path(unsigned which, float x)
{
    switch (which) {
    case 0: return path0(x);
    case 1: return path1(x);
    case 2: return path2(x);
    case 3: return path3(x);
    case 4: return path4(x);
    case 5: return path5(x);
    case 6: return path6(x);
    default: return path7(x);
    }
}

#endif

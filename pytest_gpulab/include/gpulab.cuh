// gpulab.cuh: the header that pytest-gpulab ships for student kernels. Include it first:
//     #include <gpulab.cuh>
#ifndef GPULAB_CUH
#define GPULAB_CUH

// GPULAB_TUNABLE(NAME, value), at file scope, defines a compile-time integer of your choice. The grader reads
// it from the compiled module, because the launch depends on it. Use NAME like any constant:
//     GPULAB_TUNABLE(BLOCK_SIZE, 256)
//     __shared__ float tile[BLOCK_SIZE];
#define GPULAB_TUNABLE(name, value)                           \
    [[maybe_unused]] __device__ constexpr int name = (value); \
    extern "C" __device__ const int gpulab_tunable_##name = (value);

// GPULAB_KERNEL(name, kernel), at file scope, hands in `kernel` as the exercise's kernel `name`. It is needed only if
// several of your kernels could be meant. The kernel may be an instance of a template:
//     GPULAB_KERNEL(reduce, sum_in_shared_memory<256>)
#define GPULAB_KERNEL(name, ...) extern "C" __device__ const char gpulab_kernel_##name[] = #__VA_ARGS__;

// GPULAB_TODO(kernel), at file scope, marks a kernel that is not written yet. As long as the file has such a
// line, the exercise counts as not started. Delete the line when you begin.
#define GPULAB_TODO(kernel) extern "C" __device__ const int gpulab_todo_##kernel = __LINE__;

// The element type and the operation of a generic exercise. The grader defines them and compiles the file
// once per type and operation. Without the grader, they are an int sum.
#ifndef GPULAB_T
#define GPULAB_T int
#define GPULAB_OP(a, b) ((a) + (b))
#define GPULAB_IDENTITY 0
#endif

#endif

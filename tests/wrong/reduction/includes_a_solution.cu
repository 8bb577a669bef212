// Wrong: includes a solution by its path on the machine.
#include <gpulab.cuh>
#include "../../../solutions/reduction/10_shuffle_unroll8.cu"

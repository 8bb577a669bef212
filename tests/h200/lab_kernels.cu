// Kernels of a first lab course, estimated before they were timed; see lab_launches.py.
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)
#define AT_2D int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y
typedef unsigned char Byte;

extern "C" {
// --- few warps ------------------------------------------------------------------------------------
__global__ void extremes_of_one_thread(const int *x, int *out, int n) {
    int low = x[0], high = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    out[0] = low;
    out[1] = high;
}
__global__ void variance_of_one_warp(const float *x, float *out, int n) {
    float mean = 0, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) mean += x[i];
    for (int mask = 16; mask > 0; mask /= 2) mean += __shfl_xor_sync(0xffffffff, mean, mask);
    mean /= n;
    for (int i = threadIdx.x; i < n; i += 32) sum += (x[i] - mean) * (x[i] - mean);
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    if (threadIdx.x == 0) *out = sum / n;
}
__global__ void greatest_divisors(const unsigned *a, const unsigned *b, unsigned *out) {
    unsigned u = a[THREAD] + 1, v = b[THREAD] + 1;
    while (v != 0) {
        unsigned rest = u % v;
        u = v;
        v = rest;
    }
    out[THREAD] = u;
}
__global__ void pendulum(float *angle, float *speed, int steps) {
    float a = angle[THREAD], v = speed[THREAD];
    for (int k = 0; k < steps; k++) {
        v -= 0.01f * sinf(a);
        a += 0.01f * v;
    }
    angle[THREAD] = a;
    speed[THREAD] = v;
}
__global__ void checksum_of_rows(const Byte *rows, unsigned *sums, int length) {
    unsigned a = 1, b = 0;
    for (int i = 0; i < length; i++) {
        a = (a + rows[THREAD * length + i]) % 65521;
        b = (b + a) % 65521;
    }
    sums[THREAD] = b << 16 | a;
}

// --- one block, barriers in a loop ----------------------------------------------------------------
__global__ void scan_in_chunks(const int *x, int *out, int n) {
    __shared__ int s[512];
    int t = threadIdx.x, carry = 0;
    for (int start = 0; start < n; start += 512) {
        s[t] = x[start + t];
        __syncthreads();
        for (int d = 1; d < 512; d *= 2) {
            int other = t >= d ? s[t - d] : 0;
            __syncthreads();
            s[t] += other;
            __syncthreads();
        }
        out[start + t] = carry + s[t];
        carry += s[511];
        __syncthreads();
    }
}
__global__ void life_in_one_block(const Byte *in, Byte *out, int rounds) {
    __shared__ Byte board[2][34][34];
    int x = threadIdx.x + 1, y = threadIdx.y + 1;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 2 * 34 * 34; k += 1024) board[k / 1156][k % 1156 / 34][k % 34] = 0;
    __syncthreads();
    board[0][y][x] = in[(y - 1) * 32 + x - 1] & 1;
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        int now = r % 2, alive = 0;
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                if (dx != 0 || dy != 0) alive += board[now][y + dy][x + dx];
        board[1 - now][y][x] = alive == 3 || (alive == 2 && board[now][y][x]);
        __syncthreads();
    }
    out[(y - 1) * 32 + x - 1] = board[rounds % 2][y][x];
}
__global__ void gauss_in_one_block(const float *in, float *out, int systems) {
    __shared__ float a[16][17];
    int x = threadIdx.x, y = threadIdx.y;
    for (int s = 0; s < systems; s++) {
        a[y][x] = in[s * 272 + y * 17 + x] + (x == y ? 16 : 0);
        __syncthreads();
        for (int k = 0; k < 15; k++) {
            float factor = a[y][k] / a[k][k], above = a[k][x];
            __syncthreads();
            if (y > k && x >= k) a[y][x] -= factor * above;
            __syncthreads();
        }
        out[s * 272 + y * 17 + x] = a[y][x];
        __syncthreads();
    }
}
__global__ void odd_even_sort(int *x, int rounds) {
    __shared__ int s[512];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 256] = x[t + 256];
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        int i = 2 * t + r % 2;
        if (i + 1 < 512 && s[i] > s[i + 1]) {
            int larger = s[i];
            s[i] = s[i + 1];
            s[i + 1] = larger;
        }
        __syncthreads();
    }
    x[t] = s[t];
    x[t + 256] = s[t + 256];
}

// --- switches and branches ------------------------------------------------------------------------
__global__ void calculator(const Byte *operation, const float *a, const float *b, float *out) {
    float u = a[THREAD], v = b[THREAD] + 1, found = 0;
    switch (operation[THREAD]) {
        case 0: found = u + v; break;
        case 1: found = u - v; break;
        case 2: found = u * v; break;
        case 3: found = u / v; break;
        case 4: found = sqrtf(u * u + v * v); break;
        case 5: found = expf(-u * v); break;
        case 6: found = logf(u + v); break;
        case 7: found = u > v ? u : v; break;
    }
    out[THREAD] = found;
}
__global__ void robot(const Byte *program, int *out, int steps) {
    int x = 0, y = 0, facing = 0, painted = 0;
    for (int k = 0; k < steps; k++) {
        switch (program[(THREAD * 7 + k) % 1024]) {
            case 0: x += facing == 0 ? 1 : facing == 2 ? -1 : 0; break;
            case 1: y += facing == 1 ? 1 : facing == 3 ? -1 : 0; break;
            case 2: facing = (facing + 1) % 4; break;
            case 3: facing = (facing + 3) % 4; break;
            case 4: painted ^= x * 31 + y; break;
            case 5: x = y = 0; break;
            default: painted = painted * 5 + facing;
        }
    }
    out[THREAD] = painted + x * y;
}
__global__ void odd_threads_work_longer(const float *in, float *out) {
    float v = in[THREAD];
    if (threadIdx.x % 2 == 1)
        for (int k = 0; k < 40; k++) v = v * 0.99f + 0.5f;
    else
        for (int k = 0; k < 20; k++) v = v * v - 0.5f;
    out[THREAD] = v;
}
__global__ void digits_of_number(const unsigned *x, int *out) {
    unsigned v = x[THREAD];
    int digits = 0, sum = 0;
    do {
        sum += v % 10;
        v /= 10;
        digits++;
    } while (v > 0);
    out[THREAD] = sum * 16 + digits;
}

// --- unrolled loops, small blocks -----------------------------------------------------------------
__global__ void polynomial(const float *x, const float *c, float *out, int degree) {
    float v = x[THREAD], sum = 0;
    for (int k = 0; k < degree; k++) sum = sum * v + c[k];
    out[THREAD] = sum;
}
__global__ void moving_average(const float *in, float *out, int n, int width) {
    int i = THREAD;
    float sum = 0;
    for (int k = 0; k < width; k++) sum += in[min(i + k, n - 1)];
    out[i] = sum / width;
}
__global__ void sums_of_chunks(const float *in, float *out, int length) {
    float sum = 0;
    for (int k = 0; k < length; k++) sum += in[THREAD * length + k];
    out[THREAD] = sum;
}
__global__ void nearest_point(const float *x, const float *y, int *nearest, int points) {
    float px = x[THREAD], py = y[THREAD], best = 1e30f;
    int found = -1;
    for (int k = 0; k < points; k++) {
        float dx = x[k] - px, dy = y[k] - py, d = dx * dx + dy * dy;
        if (d < best && k != THREAD) {
            best = d;
            found = k;
        }
    }
    nearest[THREAD] = found;
}

// --- tiles, reductions, stencils ------------------------------------------------------------------
__global__ void tiles_of_eight(const float *a, const float *b, float *c, int side) {
    __shared__ float left[8][8], right[8][8];
    AT_2D;
    float sum = 0;
    for (int k = 0; k < side; k += 8) {
        left[threadIdx.y][threadIdx.x] = a[y * side + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + x];
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[y * side + x] = sum;
}
__global__ void heat_in_tiles(const float *in, float *out, int n, int steps) {
    __shared__ float now[128];
    int t = threadIdx.x;
    now[t] = in[THREAD];
    __syncthreads();
    for (int k = 0; k < steps; k++) {
        float next = t > 0 && t < 127 ? 0.5f * now[t] + 0.25f * (now[t - 1] + now[t + 1]) : now[t];
        __syncthreads();
        now[t] = next;
        __syncthreads();
    }
    out[THREAD] = now[t];
}
__global__ void products_of_blocks(const double *in, double *out) {
    __shared__ double part[64];
    part[threadIdx.x] = 1 + 0.001 * in[THREAD];
    __syncthreads();
    for (int half = 32; half >= 1; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] *= part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
__global__ void edges_of_image(const Byte *in, Byte *out, int side) {
    AT_2D;
    if (x == 0 || y == 0 || x >= side - 1 || y >= side - 1) {
        out[y * side + x] = 0;
        return;
    }
    const Byte *p = in + y * side + x;
    int across = p[1 - side] + 2 * p[1] + p[1 + side] - p[-1 - side] - 2 * p[-1] - p[side - 1];
    int down = p[side - 1] + 2 * p[side] + p[side + 1] - p[-side - 1] - 2 * p[-side] - p[1 - side];
    out[y * side + x] = min((int)sqrtf(across * across + down * down), 255);
}
}

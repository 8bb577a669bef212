// Kernels as students write them, estimated before they were timed; see exam_launches.py.
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)
#define AT_2D int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y
typedef unsigned char Byte;

__constant__ float gamma_of[256];
__constant__ float weights[25];
__constant__ float coefficients[4][6];
__constant__ int days_before[12];

extern "C" {
// --- reductions -----------------------------------------------------------------------------------
__global__ void sum_and_squares(const float *x, float *sums, unsigned n) {
    float sum = 0, squares = 0;
    for (unsigned i = THREAD; i < n; i += ALL) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, d);
        squares += __shfl_down_sync(0xffffffff, squares, d);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[0], sum);
        atomicAdd(&sums[1], squares);
    }
}
__global__ void minimum_and_maximum(const int *x, int *low, int *high) {
    __shared__ int lows[256], highs[256];
    int t = threadIdx.x;
    lows[t] = highs[t] = x[THREAD];
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step) {
            lows[t] = min(lows[t], lows[t + step]);
            highs[t] = max(highs[t], highs[t + step]);
        }
        __syncthreads();
    }
    if (t == 0) {
        low[blockIdx.x] = lows[0];
        high[blockIdx.x] = highs[0];
    }
}
__global__ void position_of_maximum(const float *x, unsigned *found) {
    __shared__ unsigned best[256];
    unsigned t = threadIdx.x;
    best[t] = THREAD;
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        if (t % (2 * step) == 0 && x[best[t + step]] > x[best[t]]) best[t] = best[t + step];
    }
    if (t == 0) found[blockIdx.x] = best[0];
}
__global__ void norms_of_rows(const float *a, float *norms, int columns) {
    __shared__ float partial[128];
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        float v = a[blockIdx.x * columns + j];
        sum += v * v;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int k = 0; k < 128; k++) total += partial[k];
        norms[blockIdx.x] = sqrtf(total);
    }
}
__global__ void count_by_ballot(const float *x, unsigned *count, float limit) {
    unsigned votes = __ballot_sync(0xffffffff, x[THREAD] > limit);
    if (threadIdx.x % 32 == 0) atomicAdd(count, __popc(votes));
}
__global__ void means_of_columns(const float *a, float *means, int rows, int columns) {
    int j = THREAD;
    float sum = 0;
    for (int i = 0; i < rows; i++) sum += a[i * columns + j];
    means[j] = sum / rows;
}

// --- scans ----------------------------------------------------------------------------------------
__global__ void scan_by_warps(const int *x, int *out) {
    __shared__ int totals[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, value = x[THREAD];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, value, d);
        if (lane >= d) value += other;
    }
    if (lane == 31) totals[warp] = value;
    __syncthreads();
    int before = 0;
    for (int w = 0; w < warp; w++) before += totals[w];
    out[THREAD] = value + before;
}
__global__ void running_maximum(const int *x, int *out) {
    __shared__ int best[256];
    int t = threadIdx.x;
    best[t] = x[THREAD];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        int other = t >= d ? best[t - d] : best[t];
        __syncthreads();
        best[t] = max(best[t], other);
        __syncthreads();
    }
    out[THREAD] = best[t];
}
__global__ void scan_of_one_warp(const int *x, int *out, int n) {
    int carry = 0;
    for (int start = 0; start < n; start += 32) {
        int value = x[start + threadIdx.x];
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffff, value, d);
            if (threadIdx.x >= d) value += other;
        }
        value += carry;
        out[start + threadIdx.x] = value;
        carry = __shfl_sync(0xffffffff, value, 31);
    }
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void bins_per_warp(const Byte *x, unsigned *bins, unsigned n) {
    __shared__ unsigned mine[8][64];
    for (int i = threadIdx.x; i < 8 * 64; i += blockDim.x) mine[i / 64][i % 64] = 0;
    __syncthreads();
    for (unsigned i = THREAD; i < n; i += ALL) atomicAdd(&mine[threadIdx.x / 32][x[i] / 4], 1);
    __syncthreads();
    if (threadIdx.x < 64) {
        unsigned sum = 0;
        for (int w = 0; w < 8; w++) sum += mine[w][threadIdx.x];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}
__global__ void bins_of_points(const float *x, const float *y, unsigned *bins, unsigned n) {
    for (unsigned i = THREAD; i < n; i += ALL) atomicAdd(&bins[(int)(x[i] * 32) * 32 + (int)(y[i] * 32)], 1);
}
__global__ void bins_of_runs(const Byte *x, unsigned *bins) {
    unsigned start = 16 * THREAD, run = 1;
    for (int k = 1; k < 16; k++) {
        if (x[start + k] == x[start + k - 1]) {
            run++;
        } else {
            atomicAdd(&bins[x[start + k - 1]], run);
            run = 1;
        }
    }
    atomicAdd(&bins[x[start + 15]], run);
}

// --- stencils -------------------------------------------------------------------------------------
__global__ void jacobi(const float *old, const float *source, float *now, int side) {
    AT_2D;
    if (x == 0 || y == 0 || x == side - 1 || y == side - 1) {
        now[y * side + x] = old[y * side + x];
        return;
    }
    float sum = old[y * side + x - 1] + old[y * side + x + 1] + old[(y - 1) * side + x] + old[(y + 1) * side + x];
    now[y * side + x] = 0.25f * (sum - source[y * side + x]);
}
__global__ void nine_points(const float *in, float *out, int side) {
    __shared__ float tile[18][18];
    AT_2D;
    for (int j = threadIdx.y; j < 18; j += 16)
        for (int i = threadIdx.x; i < 18; i += 16) {
            int from_x = min(max((int)(blockIdx.x * 16) + i - 1, 0), side - 1);
            int from_y = min(max((int)(blockIdx.y * 16) + j - 1, 0), side - 1);
            tile[j][i] = in[from_y * side + from_x];
        }
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++) sum += tile[threadIdx.y + j][threadIdx.x + i];
    out[y * side + x] = sum / 9;
}
__global__ void erode(const Byte *in, Byte *out, int side) {
    AT_2D;
    Byte low = 255;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (x + dx >= 0 && x + dx < side && y + dy >= 0 && y + dy < side)
                low = min(int(low), int(in[(y + dy) * side + x + dx]));
    out[y * side + x] = low;
}
__global__ void string_in_one_block(float *u, int steps) {
    __shared__ float now[1024], old[1024];
    int t = threadIdx.x;
    now[t] = old[t] = u[t];
    __syncthreads();
    for (int k = 0; k < steps; k++) {
        float next = now[t];
        if (t > 0 && t < 1023) next = 2 * now[t] - old[t] + 0.25f * (now[t - 1] - 2 * now[t] + now[t + 1]);
        __syncthreads();
        old[t] = now[t];
        now[t] = next;
        __syncthreads();
    }
    u[t] = now[t];
}

// --- products -------------------------------------------------------------------------------------
__global__ void product_with_transposed(const float *a, const float *b, float *c, int side) {
    AT_2D;
    float sum = 0;
    for (int k = 0; k < side; k++) sum += a[y * side + k] * b[x * side + k];
    c[y * side + x] = sum;
}
__global__ void product_of_doubles(const double *a, const double *b, double *c, int side) {
    __shared__ double left[16][16], right[16][16];
    AT_2D;
    double sum = 0;
    for (int k = 0; k < side; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[y * side + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + x];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[y * side + x] = sum;
}
__global__ void outer_product(const float *a, const float *b, float *c, int side) {
    AT_2D;
    c[y * side + x] = a[y] * b[x];
}
__global__ void power_of_matrix(const float *in, float *out) {
    float m[9], p[9], q[9];
    for (int i = 0; i < 9; i++) m[i] = p[i] = in[i * ALL + THREAD];
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) q[3 * i + j] = p[3 * i] * m[j] + p[3 * i + 1] * m[3 + j] + p[3 * i + 2] * m[6 + j];
        for (int i = 0; i < 9; i++) p[i] = q[i];
    }
    for (int i = 0; i < 9; i++) out[i * ALL + THREAD] = p[i];
}
__global__ void shortest_step(float *d, int side, int via) {
    AT_2D;
    float through = d[y * side + via] + d[via * side + x];
    if (through < d[y * side + x]) d[y * side + x] = through;
}

// --- transposes -----------------------------------------------------------------------------------
__global__ void transpose_bytes(const Byte *in, Byte *out, int side) {
    __shared__ Byte tile[32][33];
    for (int j = threadIdx.y; j < 32; j += 8)
        tile[j][threadIdx.x] = in[(blockIdx.y * 32 + j) * side + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8)
        out[(blockIdx.x * 32 + j) * side + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][j];
}
__global__ void transpose_in_place(float *a, int side) {
    AT_2D;
    if (x < y) {
        float upper = a[x * side + y];
        a[x * side + y] = a[y * side + x];
        a[y * side + x] = upper;
    }
}
__global__ void quarter_turn(const float *in, float *out, int side) {
    AT_2D;
    out[x * side + side - 1 - y] = in[y * side + x];
}

// --- loops with branches --------------------------------------------------------------------------
__global__ void perfect_numbers(const unsigned *x, Byte *perfect) {
    unsigned n = x[THREAD], sum = 1;
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0) {
            sum += d;
            if (d != n / d) sum += n / d;
        }
    perfect[THREAD] = sum == n;
}
__global__ void newton_until_close(const float *x, float *out) {
    float a = x[THREAD] + 0.01f, guess = a;
    while (fabsf(guess * guess - a) > 1e-5f * a) guess = 0.5f * (guess + a / guess);
    out[THREAD] = guess;
}
__global__ void bisect(const float *x, float *out) {
    float low = 0, high = 4;
    for (int k = 0; k < 30; k++) {
        float middle = 0.5f * (low + high);
        if (middle * middle * middle + middle > 10 * x[THREAD])
            high = middle;
        else
            low = middle;
    }
    out[THREAD] = low;
}
__global__ void random_walk(int *out, int steps) {
    unsigned state = THREAD * 747796405u + 1;
    int x = 0, y = 0;
    for (int k = 0; k < steps; k++) {
        state = state * 1664525u + 1013904223u;
        switch (state >> 30) {
            case 0: x++; break;
            case 1: x--; break;
            case 2: y++; break;
            default: y--;
        }
    }
    out[THREAD] = x * x + y * y;
}
__global__ void day_of_year(const int *year, const int *month, const int *day, int *out) {
    int i = THREAD, y = year[i], m = month[i], found = days_before[m] + day[i];
    if (m > 1 && (y % 4 == 0 && y % 100 != 0 || y % 400 == 0)) found++;
    out[i] = found;
}
__global__ void compare_lines(const Byte *a, const Byte *b, int *order, int length) {
    int i = THREAD, k = 0;
    while (k < length && a[i * length + k] == b[i * length + k]) k++;
    order[i] = k == length ? 0 : a[i * length + k] < b[i * length + k] ? -1 : 1;
}
__global__ void price_of_option(const float *draws, float *prices, int steps) {
    float price = 100;
    for (int k = 0; k < steps; k++) {
        price *= expf(0.001f + 0.02f * (draws[k * ALL + THREAD] - 0.5f));
        if (price < 80) {
            price = 0;
            break;
        }
    }
    prices[THREAD] = fmaxf(price - 100, 0);
}

// --- constant tables ------------------------------------------------------------------------------
__global__ void correct_gamma(const Byte *in, float *out) { out[THREAD] = gamma_of[in[THREAD]]; }
__global__ void polynomial_of_block(const float *in, float *out) {
    const float *c = coefficients[blockIdx.x % 4];
    float x = in[THREAD], y = c[5];
    for (int k = 4; k >= 0; k--) y = y * x + c[k];
    out[THREAD] = y;
}
__global__ void filter_five(const float *in, float *out, int side) {
    AT_2D;
    float sum = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            int from_x = x + dx, from_y = y + dy;
            if (from_x >= 0 && from_x < side && from_y >= 0 && from_y < side)
                sum += weights[(dy + 2) * 5 + dx + 2] * in[from_y * side + from_x];
        }
    out[y * side + x] = sum;
}

// --- atomics --------------------------------------------------------------------------------------
__global__ void transfer_money(const unsigned *from, const unsigned *to, int *balance) {
    atomicSub(&balance[from[THREAD]], 1);
    atomicAdd(&balance[to[THREAD]], 1);
}
__global__ void largest_by_key(const unsigned *key, const int *value, int *largest) {
    atomicMax(&largest[key[THREAD]], value[THREAD]);
}
__global__ void append_positive(const float *x, float *out, unsigned *count) {
    float value = x[THREAD];
    if (value > 0.75f) out[atomicAdd(count, 1)] = value;
}
__global__ void push_to_lists(const unsigned *key, int *head, int *next) {
    int i = THREAD;
    next[i] = atomicExch(&head[key[i]], i);
}

// --- few warps ------------------------------------------------------------------------------------
__global__ void fibonacci_of_one_thread(unsigned *out, int n) {
    unsigned a = 0, b = 1;
    for (int k = 0; k < n; k++) {
        unsigned next = (a + b) % 1000007;
        a = b;
        b = next;
    }
    *out = a;
}
__global__ void sum_of_one_warp(const float *x, float *out, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) *out = sum;
}
__global__ void dot_of_one_block(const float *a, const float *b, float *out, int n) {
    __shared__ float partial[256];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += a[i] * b[i];
    partial[threadIdx.x] = sum;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    }
    if (threadIdx.x == 0) *out = partial[0];
}
__global__ void lengths_of_lists(const int *next, int *lengths, int n) {
    int at = THREAD, length = 0;
    while (at < n) {
        at = next[at];
        length++;
    }
    lengths[THREAD] = length;
}
__global__ void sort_in_a_warp(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    s[t + 32] = x[blockIdx.x * 64 + t + 32];
    for (int k = 0; k < 64; k++) {
        int i = 2 * t + k % 2;
        __syncwarp();
        if (i + 1 < 64 && s[i] > s[i + 1]) {
            int larger = s[i];
            s[i] = s[i + 1];
            s[i + 1] = larger;
        }
    }
    __syncwarp();
    x[blockIdx.x * 64 + t] = s[t];
    x[blockIdx.x * 64 + t + 32] = s[t + 32];
}
__global__ void relax_all_edges(const int *from, const int *to, const int *cost, int *distance, int edges, int rounds) {
    __shared__ int d[256];
    d[threadIdx.x] = threadIdx.x == 0 ? 0 : 1 << 20;
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        for (int e = threadIdx.x; e < edges; e += 256) {
            int through = d[from[e]] + cost[e];
            if (through < d[to[e]]) atomicMin(&d[to[e]], through);
        }
        __syncthreads();
    }
    distance[threadIdx.x] = d[threadIdx.x];
}
__global__ void sieve(Byte *composite, unsigned length) {
    __shared__ Byte mine[4096];
    unsigned start = blockIdx.x * 4096;
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (unsigned p = 2 + threadIdx.x; p * p < length; p += blockDim.x)
        for (unsigned m = max(p * p, (start + p - 1) / p * p); m < start + 4096; m += p) mine[m - start] = 1;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) composite[start + i] = mine[i];
}
__global__ void edit_distance(const Byte *a, const Byte *b, int *out, int n) {
    __shared__ int last[257], before[257];
    int t = threadIdx.x, here = 0;
    last[t] = before[t] = t;
    __syncthreads();
    for (int k = 2; k <= n + 256; k++) {
        int i = k - t;
        if (t == 0) here = k;
        else if (i == 0) here = t;
        else if (i > 0 && i <= n)
            here = min(min(last[t] + 1, last[t - 1] + 1), before[t - 1] + (a[t - 1] != b[i - 1]));
        __syncthreads();
        before[t] = last[t];
        last[t] = here;
        __syncthreads();
    }
    out[t] = here;
}
__global__ void one_row_of_mandelbrot(int *out, int side, int limit) {
    int y = THREAD;
    for (int x = 0; x < 32; x++) {
        float cx = x / 16.0f - 1.5f, cy = 2.0f * y / side - 1.0f, zx = 0, zy = 0;
        int k = 0;
        while (k < limit && zx * zx + zy * zy < 4) {
            float next = zx * zx - zy * zy + cx;
            zy = 2 * zx * zy + cy;
            zx = next;
            k++;
        }
        out[y * 32 + x] = k;
    }
}
}

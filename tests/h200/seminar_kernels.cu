// Kernels that a seminar asks for, week by week, estimated before they were timed; see seminar_launches.py.
#define FULL 0xffffffff
typedef unsigned char Byte;

__constant__ int weights[9];
__constant__ double coefficients[12];
__constant__ float3 palette[256];
__constant__ int borders[64];

__device__ int in_order(int a, int b, bool up) {
    return up ? min(a, b) : max(a, b);
}
extern "C" {
// --- reductions -----------------------------------------------------------------------------------
__global__ void total_by_tree(const float *in, float *total, int n) {
    __shared__ float part[512];
    int i = blockIdx.x * 512 + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] : 0;
    for (int half = 256; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(total, part[0]);
}
__global__ void total_by_two_shuffles(const int *in, int *total, int n) {
    __shared__ int part[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(FULL, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(FULL, sum, d);
    if (threadIdx.x == 0) atomicAdd(total, sum);
}
__global__ void length_of_vector(const double *v, double *square, int n) {
    __shared__ double part[128];
    double sum = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) sum += v[i] * v[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(square, part[0]);
}
__global__ void nearest_to_zero(const float *in, int2 *best, int n) {
    __shared__ float value[256];
    __shared__ int place[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    value[t] = fabsf(in[i] - 0.5f);
    place[t] = i;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (t < half && value[t + half] < value[t]) {
            value[t] = value[t + half];
            place[t] = place[t + half];
        }
        __syncthreads();
    }
    if (t == 0) best[blockIdx.x] = make_int2(place[0], __float_as_int(value[0]));
}
__global__ void is_sorted(const int *in, int *wrong, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool bad = i + 1 < n && in[i] > in[i + 1];
    if (__syncthreads_or(bad) && threadIdx.x == 0) *wrong = 1;
}

// --- scans ----------------------------------------------------------------------------------------
__global__ void prefix_in_big_block(const int *in, int *out) {
    __shared__ int s[2][1024];
    int t = threadIdx.x, i = blockIdx.x * 1024 + t, from = 0;
    s[0][t] = t ? in[i - 1] : 0;
    __syncthreads();
    for (int d = 1; d < 1024; d *= 2) {
        s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
        from = 1 - from;
        __syncthreads();
    }
    out[i] = s[from][t];
}
__global__ void prefix_four_in_registers(const int4 *in, int4 *out) {
    __shared__ int sums[8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t, lane = t % 32;
    int4 v = in[i];
    v.y += v.x;
    v.z += v.y;
    v.w += v.z;
    int sum = v.w;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(FULL, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[t / 32] = sum;
    __syncthreads();
    int before = sum - v.w;
    for (int w = 0; w < t / 32; w++) before += sums[w];
    out[i] = make_int4(v.x + before, v.y + before, v.z + before, v.w + before);
}
__global__ void prefix_by_first_thread(const float *in, float *out) {
    __shared__ float s[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    s[threadIdx.x] = in[i];
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 1; k < 128; k++) s[k] += s[k - 1];
    __syncthreads();
    out[i] = s[threadIdx.x];
}
__global__ void add_offsets(int *data, const int *offsets, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n) data[i] += offsets[blockIdx.x - 1];
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void pixels_in_16_levels(const uchar4 *in, int *levels, int n) {
    __shared__ int s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uchar4 p = in[i];
        atomicAdd(&s[p.x >> 4], 1);
        atomicAdd(&s[p.y >> 4], 1);
        atomicAdd(&s[p.z >> 4], 1);
        atomicAdd(&s[p.w >> 4], 1);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&levels[threadIdx.x], s[threadIdx.x]);
}
__global__ void pairs_of_bytes(const Byte *a, const Byte *b, unsigned *table, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&table[(a[i] >> 2) * 64 + (b[i] >> 2)], 1u);
}
__global__ void dice_in_registers(const Byte *dice, int *counts, int n) {
    int ones = 0, sixes = 0, others = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int d = dice[i] % 6;
        if (d == 0) ones++;
        else if (d == 5) sixes++;
        else others++;
    }
    ones = __reduce_add_sync(FULL, ones);
    sixes = __reduce_add_sync(FULL, sixes);
    others = __reduce_add_sync(FULL, others);
    if (threadIdx.x % 32) return;
    atomicAdd(&counts[0], ones);
    atomicAdd(&counts[1], sixes);
    atomicAdd(&counts[2], others);
}
__global__ void sorted_keys(const int *keys, int *counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[keys[i]], 1);
}

// --- transposes -----------------------------------------------------------------------------------
__global__ void flip_reading_rows(const int *in, int *out, int side) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    out[x * side + y] = in[y * side + x];
}
__global__ void flip_swizzled(const int *in, int *out, int side) {
    __shared__ int tile[32][32];
    int tx = threadIdx.x, ty = threadIdx.y;
    tile[ty][tx ^ ty] = in[(blockIdx.y * 32 + ty) * side + blockIdx.x * 32 + tx];
    __syncthreads();
    out[(blockIdx.x * 32 + ty) * side + blockIdx.y * 32 + tx] = tile[tx][ty ^ tx];
}
__global__ void flip_small_tiles(const int *in, int *out, int width, int height) {
    __shared__ int tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void half_turn(const uchar4 *in, uchar4 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[n - 1 - i] = in[i];
}

// --- stencils -------------------------------------------------------------------------------------
__global__ void diffusion_by_index(const float *in, float *out, int side, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % side, y = i / side % side, z = i / (side * side), depth = n / (side * side);
    if (x == 0 || y == 0 || z == 0 || x == side - 1 || y == side - 1 || z == depth - 1) return;
    out[i] = in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - side] + in[i + side] + in[i - side * side]
                             + in[i + side * side] - 6 * in[i]);
}
__global__ void wave_step(const double *now, double *old, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * side + x;
    if (x < 1 || y < 1 || x > side - 2 || y > side - 2) return;
    old[i] = 2 * now[i] - old[i] + 0.2 * (now[i - 1] + now[i + 1] + now[i - side] + now[i + side] - 4 * now[i]);
}
__global__ void sharpen_clamped(const int *in, int *out, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, sum = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int at_x = min(max(x + dx, 0), side - 1), at_y = min(max(y + dy, 0), side - 1);
            sum += weights[(dy + 1) * 3 + dx + 1] * in[at_y * side + at_x];
        }
    out[y * side + x] = sum;
}
__global__ void box_in_shared(const float *in, float *out, int side) {
    __shared__ float s[20][36];
    int x = blockIdx.x * 32, y = blockIdx.y * 16, t = threadIdx.y * 32 + threadIdx.x;
    for (int k = t; k < 20 * 36; k += 512) {
        int at_x = x + k % 36 - 2, at_y = y + k / 36 - 2;
        bool inside = at_x >= 0 && at_y >= 0 && at_x < side && at_y < side;
        s[k / 36][k % 36] = inside ? in[at_y * side + at_x] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++) sum += s[threadIdx.y + dy][threadIdx.x + dx];
    out[(y + threadIdx.y) * side + x + threadIdx.x] = sum / 25;
}
__global__ void neighbours_by_shuffle(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    float v = in[i], left = __shfl_up_sync(FULL, v, 1), right = __shfl_down_sync(FULL, v, 1);
    if (lane == 0) left = i > 0 ? in[i - 1] : v;
    if (lane == 31) right = i + 1 < n ? in[i + 1] : v;
    out[i] = 0.25f * left + 0.5f * v + 0.25f * right;
}

// --- products of matrices ---------------------------------------------------------------------------
__global__ void product_tile_32(const float *a, const float *b, float *c, int side) {
    __shared__ float as[32][32], bs[32][32];
    int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < side; k += 32) {
        as[threadIdx.y][threadIdx.x] = a[row * side + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + column];
        __syncthreads();
        for (int j = 0; j < 32; j++) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    c[row * side + column] = sum;
}
__global__ void product_tile_doubles(const double *a, const double *b, double *c, int side) {
    __shared__ double as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    double sum = 0;
    for (int tile = 0; tile < side / 16; tile++) {
        as[ty][tx] = a[row * side + tile * 16 + tx];
        bs[ty][tx] = b[(tile * 16 + ty) * side + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    c[row * side + column] = sum;
}
__global__ void product_two_by_two(const float *a, const float *b, float *c, int side) {
    int row = 2 * (blockIdx.y * blockDim.y + threadIdx.y), column = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    float s00 = 0, s01 = 0, s10 = 0, s11 = 0;
    for (int k = 0; k < side; k++) {
        float a0 = a[row * side + k], a1 = a[(row + 1) * side + k];
        float2 bk = *(const float2 *)&b[k * side + column];
        s00 += a0 * bk.x;
        s01 += a0 * bk.y;
        s10 += a1 * bk.x;
        s11 += a1 * bk.y;
    }
    c[row * side + column] = s00;
    c[row * side + column + 1] = s01;
    c[(row + 1) * side + column] = s10;
    c[(row + 1) * side + column + 1] = s11;
}
__global__ void many_small_products(const float4 *a, const float4 *b, float4 *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 rows[4];
    for (int k = 0; k < 4; k++) rows[k] = b[4 * i + k];
    for (int r = 0; r < 4; r++) {
        float4 v = a[4 * i + r], sum;
        sum.x = v.x * rows[0].x + v.y * rows[1].x + v.z * rows[2].x + v.w * rows[3].x;
        sum.y = v.x * rows[0].y + v.y * rows[1].y + v.z * rows[2].y + v.w * rows[3].y;
        sum.z = v.x * rows[0].z + v.y * rows[1].z + v.z * rows[2].z + v.w * rows[3].z;
        sum.w = v.x * rows[0].w + v.y * rows[1].w + v.z * rows[2].w + v.w * rows[3].w;
        c[4 * i + r] = sum;
    }
}

// --- sparse matrices, graphs ------------------------------------------------------------------------
__global__ void rows_by_eight_threads(const int *starts, const int *columns, const double *values, const double *x,
                                      double *y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, part = threadIdx.x % 8;
    if (row >= rows) return;
    double sum = 0;
    for (int k = starts[row] + part; k < starts[row + 1]; k += 8) sum += values[k] * x[columns[k]];
    for (int d = 4; d > 0; d /= 2) sum += __shfl_down_sync(FULL, sum, d, 8);
    if (part == 0) y[row] = sum;
}
__global__ void five_diagonals(const double *bands, const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
    for (int k = 0; k < 5; k++) {
        int column = i + (k - 2) * (k == 0 || k == 4 ? 32 : 1);
        if (column >= 0 && column < n) sum += bands[k * n + i] * x[column];
    }
    y[i] = sum;
}
__global__ void push_ranks(const int *target, const float *rank, float *next, int n) {
    int page = blockIdx.x * blockDim.x + threadIdx.x;
    if (page >= n) return;
    float share = 0.85f * rank[page] / 4;
    for (int k = 0; k < 4; k++) atomicAdd(&next[target[4 * page + k]], share);
}
__global__ void count_triangles(const unsigned *adjacent, int *found, int side) {
    int a = blockIdx.y * blockDim.y + threadIdx.y, b = blockIdx.x * blockDim.x + threadIdx.x, count = 0;
    for (int w = 0; w < 8; w++) count += __popc(adjacent[a * 8 + w] & adjacent[b * 8 + w]);
    found[a * side + b] = count;
}

// --- steps of sorting -------------------------------------------------------------------------------
__global__ void bitonic_512(int *keys) {
    __shared__ int s[512];
    int t = threadIdx.x;
    keys += blockIdx.x * 512;
    s[t] = keys[t];
    s[t + 256] = keys[t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int d = size / 2; d > 0; d /= 2) {
            __syncthreads();
            int at = 2 * t - (t & (d - 1));
            bool up = (at & size) == 0;
            int a = s[at], b = s[at + d];
            s[at] = in_order(a, b, up);
            s[at + d] = in_order(a, b, !up);
        }
    __syncthreads();
    keys[t] = s[t];
    keys[t + 256] = s[t + 256];
}
__global__ void digits_of_block(const unsigned *keys, unsigned *counts, int shift) {
    __shared__ unsigned s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&s[keys[blockIdx.x * blockDim.x + threadIdx.x] >> shift & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = s[threadIdx.x];
}
__global__ void insert_16(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, own[16];
    for (int k = 0; k < 16; k++) {
        int value = in[k * n + i], at = k;
        while (at > 0 && own[at - 1] > value) {
            own[at] = own[at - 1];
            at--;
        }
        own[at] = value;
    }
    for (int k = 0; k < 16; k++) out[k * n + i] = own[k];
}
__global__ void merge_two_runs(const int *in, int *out, int length) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 2 * length;
    int a = first, b = first + length, end_a = b, end_b = b + length;
    for (int k = first; k < end_b; k++)
        if (b >= end_b || (a < end_a && in[a] <= in[b])) out[k] = in[a++];
        else out[k] = in[b++];
}
__global__ void rank_in_tile(const float *in, float *out) {
    __shared__ float s[256];
    float mine = in[blockIdx.x * 256 + threadIdx.x];
    s[threadIdx.x] = mine;
    __syncthreads();
    int rank = 0;
    for (int k = 0; k < 256; k++) rank += s[k] < mine || (s[k] == mine && k < threadIdx.x);
    out[blockIdx.x * 256 + rank] = mine;
}

// --- branches ---------------------------------------------------------------------------------------
__global__ void fizz_buzz(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i % 15 == 0) out[i] = -15;
    else if (i % 5 == 0) out[i] = -5;
    else if (i % 3 == 0) out[i] = -3;
    else out[i] = i;
}
__global__ void roots_of_quadratics(const float *b, const float *c, float2 *roots, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float p = 4 * b[i] - 2, under = p * p - 4 * c[i];
    if (under > 0) {
        float r = sqrtf(under);
        roots[i] = make_float2((-p - r) / 2, (-p + r) / 2);
    } else if (under == 0) roots[i] = make_float2(-p / 2, -p / 2);
    else roots[i] = make_float2(expf(p), sinf(p));
}
__global__ void tax(const int *income, int *due, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = 63;
    if (i >= n) return;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (borders[middle] <= income[i]) low = middle;
        else high = middle - 1;
    }
    due[i] = income[i] / 100 * low;
}
__global__ void months(const int *day, int *month, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = day[i], result;
    switch (v % 9) {
        case 0: result = v * 31; break;
        case 1: result = v / 7; break;
        case 2: result = v ^ 0x55; break;
        case 3: result = __clz(v); break;
        case 4: result = v - (v >> 3); break;
        case 5: result = v % 11; break;
        case 6: result = v * v; break;
        case 7: result = ~v; break;
        default: result = v << 3 | v >> 5;
    }
    month[i] = result;
}

// --- constant memory --------------------------------------------------------------------------------
__global__ void series_of_doubles(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = coefficients[11];
    for (int k = 10; k >= 0; k--) sum = sum * x[i] + coefficients[k];
    y[i] = sum;
}
__global__ void colours_of_indices(const Byte *index, float *red, float *green, float *blue, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 colour = palette[index[i]];
    red[i] = colour.x;
    green[i] = colour.y;
    blue[i] = colour.z;
}

// --- atomics and locks ------------------------------------------------------------------------------
__global__ void best_under_lock(const float *score, float *best, int *where, int *lock) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = score[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 128; d; d /= 2) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    if (t != 0) return;
    bool done = false;
    while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            if (s[0] > *(volatile float *)best) {
                *(volatile float *)best = s[0];
                *(volatile int *)where = blockIdx.x;
            }
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
}
__global__ void highest_as_int(const float *in, int *highest, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(highest, __float_as_int(in[i]));
}
__global__ void queue_of_block(const int *in, int *queue, int *length, int n) {
    __shared__ int count, first;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, place = -1;
    if (i < n && in[i] % 3 == 0) place = atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) first = atomicAdd(length, count);
    __syncthreads();
    if (place >= 0) queue[first + place] = in[i];
}
__global__ void insert_in_table(const int *keys, int *table, int mask, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int key = keys[i], at = key * 40503 & mask;
    for (;;) {
        int there = atomicCAS(&table[at], 0, key);
        if (there == 0 || there == key) return;
        at = at + 1 & mask;
    }
}

// --- vectors, arrays of a thread --------------------------------------------------------------------
__global__ void saxpy_vectors(float a, const float4 *x, float4 *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 u = x[i], v = y[i];
    y[i] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
}
__global__ void brighter(const uchar4 *in, uchar4 *out, int by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 p = in[i];
    out[i] = make_uchar4(min(p.x + by, 255), min(p.y + by, 255), min(p.z + by, 255), p.w);
}
__global__ void digits_used(const unsigned *numbers, int *most, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, count[10] = {};
    if (i >= n) return;
    for (unsigned rest = numbers[i]; rest; rest /= 10) count[rest % 10]++;
    int digit = 0;
    for (int d = 1; d < 10; d++)
        if (count[d] > count[digit]) digit = d;
    most[i] = digit;
}

// --- doubles, integer division ----------------------------------------------------------------------
__global__ void call_options(const double *price, const double *strike, double *value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 50 + price[i], k = 50 + strike[i], v = 0.3;
    double d1 = (log(s / k) + (0.02 + v * v / 2)) / v, d2 = d1 - v;
    value[i] = s * normcdf(d1) - k * exp(-0.02) * normcdf(d2);
}
__global__ void heron(const double *x, double *root, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i] + 1, r = a;
    for (int k = 0; k < 6; k++) r = 0.5 * (r + a / r);
    root[i] = r;
}
__global__ void reversed_in_base(const unsigned *in, unsigned *out, unsigned base, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned rest = in[i], result = 0;
    while (rest > 0) {
        result = result * base + rest % base;
        rest /= base;
    }
    out[i] = result;
}
__global__ void inverse_of_each(const int *in, int *out, int modulus, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int a = in[i] + 1, b = modulus, x = 1, y = 0;
    while (b != 0) {
        int quotient = a / b, t = a - quotient * b;
        a = b;
        b = t;
        t = x - quotient * y;
        x = y;
        y = t;
    }
    out[i] = x < 0 ? x + modulus : x;
}
}

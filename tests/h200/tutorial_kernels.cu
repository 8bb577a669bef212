// Kernels as tutorials and course takers write them, estimated before they were timed; see tutorial_launches.py.
#define BLOCK 256
#define TILE 16

__constant__ float coefficients[12];
__constant__ int weights[64];

extern "C" {
// --- dot product ----------------------------------------------------------------------------------
__global__ void dot_atomic(const float *a, const float *b, float *result, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(result, a[i] * b[i]);
}
__global__ void dot_cache(const float *a, const float *b, float *result, int n) {
    __shared__ float cache[BLOCK];
    int tid = threadIdx.x + blockIdx.x * blockDim.x;
    float temp = 0;
    while (tid < n) {
        temp += a[tid] * b[tid];
        tid += blockDim.x * gridDim.x;
    }
    cache[threadIdx.x] = temp;
    __syncthreads();
    int i = blockDim.x / 2;
    while (i != 0) {
        if (threadIdx.x < i) cache[threadIdx.x] += cache[threadIdx.x + i];
        __syncthreads();
        i /= 2;
    }
    if (threadIdx.x == 0) atomicAdd(result, cache[0]);
}
__device__ unsigned int blocks_done;
__global__ void dot_threadfence(const float *a, const float *b, volatile float *partial, float *result, int n) {
    __shared__ float sdata[BLOCK];
    __shared__ bool am_last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += a[i] * b[i];
    sdata[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) sdata[threadIdx.x] += sdata[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sdata[0];
        __threadfence();
        am_last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (am_last) {
        float total = 0;
        for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) total += partial[i];
        sdata[threadIdx.x] = total;
        __syncthreads();
        for (int s = blockDim.x / 2; s > 0; s >>= 1) {
            if (threadIdx.x < s) sdata[threadIdx.x] += sdata[threadIdx.x + s];
            __syncthreads();
        }
        if (threadIdx.x == 0) *result = sdata[0];
    }
}

// --- one element per thread -----------------------------------------------------------------------
__global__ void saxpy(int n, float a, const float *x, float *y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];
}
__global__ void running_mean(const float *x, float *y, int n, int radius) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float sum = 0;
        int count = 0;
        for (int k = -radius; k <= radius; k++) {
            if (i + k >= 0 && i + k < n) {
                sum += x[i + k];
                count++;
            }
        }
        y[i] = sum / count;
    }
}
__global__ void horner(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = coefficients[11];
    for (int k = 10; k >= 0; k--) value = value * x[i] + coefficients[k];
    y[i] = value;
}
__global__ void table_by_thread(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * weights[threadIdx.x % 64];
}
__global__ void table_by_value(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int sum = 0;
        for (int k = 0; k < 4; k++) sum += weights[(x[i] >> (6 * k)) & 63];
        y[i] = sum;
    }
}
__global__ void count_ones(const unsigned *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    int count = 0;
    while (v) {
        v &= v - 1;
        count++;
    }
    y[i] = count;
}

// --- matrix and vector ----------------------------------------------------------------------------
__global__ void matvec(const float *A, const float *x, float *y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        float sum = 0.0f;
        for (int col = 0; col < n; col++) sum += A[row * n + col] * x[col];
        y[row] = sum;
    }
}
__global__ void matvec_block(const float *A, const float *x, float *y, int n) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int col = threadIdx.x; col < n; col += blockDim.x) sum += A[blockIdx.x * n + col] * x[col];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (threadIdx.x % (2 * s) == 0) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
__global__ void matmul(const float *A, const float *B, float *C, int N) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < N && col < N) {
        float sum = 0;
        for (int k = 0; k < N; k++) sum += A[row * N + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}
__global__ void matmul_tile(const float *A, const float *B, float *C, int N) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int m = 0; m < (N + TILE - 1) / TILE; m++) {
        As[ty][tx] = row < N && m * TILE + tx < N ? A[row * N + m * TILE + tx] : 0.0f;
        Bs[ty][tx] = col < N && m * TILE + ty < N ? B[(m * TILE + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < N && col < N) C[row * N + col] = sum;
}

// --- histograms -----------------------------------------------------------------------------------
__global__ void hist_global(const unsigned char *data, unsigned *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[data[i] % 16], 1);
}
__global__ void hist_shared_8(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned local[8];
    if (threadIdx.x < 8) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&local[data[i] / 32], 1);
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
__global__ void hist_shared_256(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    while (i < n) {
        atomicAdd(&local[data[i]], 1);
        i += stride;
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
__global__ void hist_own_columns(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned local[16][BLOCK];
    for (int b = 0; b < 16; b++) local[b][threadIdx.x] = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        local[data[i] >> 4][threadIdx.x]++;
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (int t = 0; t < BLOCK; t++) sum += local[threadIdx.x][(t + threadIdx.x) % BLOCK];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}

// --- counters -------------------------------------------------------------------------------------
__global__ void count_to_one(const int *x, int *counter, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] % 3 == 0) atomicAdd(counter, 1);
}
__global__ void count_to_many(const int *x, int *counters, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counters[x[i] % count], 1);
}
__global__ void sum_to_one(const int *x, int *total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, x[i]);
}

// --- prefix sums of blocks ------------------------------------------------------------------------
__global__ void scan_two_buffers(const float *in, float *out) {
    __shared__ float temp[2 * BLOCK];
    int t = threadIdx.x, base = blockIdx.x * blockDim.x, pout = 0, pin = 1;
    temp[t] = t > 0 ? in[base + t - 1] : 0;
    __syncthreads();
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (t >= offset)
            temp[pout * BLOCK + t] = temp[pin * BLOCK + t] + temp[pin * BLOCK + t - offset];
        else
            temp[pout * BLOCK + t] = temp[pin * BLOCK + t];
        __syncthreads();
    }
    out[base + t] = temp[pout * BLOCK + t];
}
__global__ void scan_blelloch(const float *in, float *out, int n) {
    extern __shared__ float temp[];
    int thid = threadIdx.x, offset = 1, base = blockIdx.x * n;
    temp[2 * thid] = in[base + 2 * thid];
    temp[2 * thid + 1] = in[base + 2 * thid + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d) {
            int ai = offset * (2 * thid + 1) - 1;
            int bi = offset * (2 * thid + 2) - 1;
            temp[bi] += temp[ai];
        }
        offset *= 2;
    }
    if (thid == 0) temp[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
            int ai = offset * (2 * thid + 1) - 1;
            int bi = offset * (2 * thid + 2) - 1;
            float t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    out[base + 2 * thid] = temp[2 * thid];
    out[base + 2 * thid + 1] = temp[2 * thid + 1];
}
__global__ void scan_of_warps(const float *in, float *out) {
    __shared__ float warp_sums[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float value = in[i];
    for (int d = 1; d < 32; d <<= 1) {
        float up = __shfl_up_sync(0xffffffffu, value, d);
        if (lane >= d) value += up;
    }
    if (lane == 31) warp_sums[warp] = value;
    __syncthreads();
    float before = 0;
    for (int w = 0; w < warp; w++) before += warp_sums[w];
    out[i] = value + before;
}

// --- segments, sparse matrices, graphs ------------------------------------------------------------
__global__ void segment_sums(const int *starts, const float *x, float *sums, int segments) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= segments) return;
    float sum = 0;
    for (int i = starts[s]; i < starts[s + 1]; i++) sum += x[i];
    sums[s] = sum;
}
__global__ void segment_sums_warp(const int *starts, const float *x, float *sums, int segments) {
    int s = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (s >= segments) return;
    float sum = 0;
    for (int i = starts[s] + lane; i < starts[s + 1]; i += 32) sum += x[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (lane == 0) sums[s] = sum;
}
__global__ void spmv_csr(int rows, const int *ptr, const int *indices, const float *data, const float *x, float *y) {
    int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < rows) {
        float dot = 0;
        int start = ptr[row], end = ptr[row + 1];
        for (int jj = start; jj < end; jj++) dot += data[jj] * x[indices[jj]];
        y[row] += dot;
    }
}
__global__ void bfs_level(const int *ptr, const int *neighbours, int *level, int *changed, int current, int vertices) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v < vertices && level[v] == current) {
        for (int e = ptr[v]; e < ptr[v + 1]; e++) {
            int u = neighbours[e];
            if (level[u] == -1) {
                level[u] = current + 1;
                *changed = 1;
            }
        }
    }
}
__global__ void follow_links(const int *next, int *out, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int node = i;
    for (int s = 0; s < steps; s++) node = next[node];
    out[i] = node;
}

// --- transposes -----------------------------------------------------------------------------------
__global__ void transpose(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}
__global__ void transpose_tile(const float *in, float *out, int width, int height) {
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

// --- stencils -------------------------------------------------------------------------------------
#define RADIUS 3
__global__ void stencil_1d(const int *in, int *out) {
    __shared__ int temp[BLOCK + 2 * RADIUS];
    int g = threadIdx.x + blockIdx.x * blockDim.x + RADIUS, l = threadIdx.x + RADIUS;
    temp[l] = in[g];
    if (threadIdx.x < RADIUS) {
        temp[l - RADIUS] = in[g - RADIUS];
        temp[l + BLOCK] = in[g + BLOCK];
    }
    __syncthreads();
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[l + offset];
    out[g] = result;
}
__global__ void heat_2d(const float *old, float *next, int width, int height, float k) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x <= 0 || y <= 0 || x >= width - 1 || y >= height - 1) return;
    int i = y * width + x;
    next[i] = old[i] + k * (old[i - 1] + old[i + 1] + old[i - width] + old[i + width] - 4 * old[i]);
}
__global__ void life_torus(const unsigned char *cells, unsigned char *next, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            if (dx == 0 && dy == 0) continue;
            alive += cells[(y + dy + height) % height * width + (x + dx + width) % width];
        }
    next[y * width + x] = alive == 3 || (alive == 2 && cells[y * width + x]) ? 1 : 0;
}

// --- compaction, extremes, sorting ----------------------------------------------------------------
__global__ void keep_positive(const int *in, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) out[atomicAdd(count, 1)] = in[i];
}
__global__ void keep_positive_ballot(const int *in, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, base = 0;
    int keep = i < n && in[i] > 0;
    unsigned mask = __ballot_sync(0xffffffffu, keep);
    if (lane == 0) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) out[base + __popc(mask & ((1u << lane) - 1))] = in[i];
}
__global__ void max_by_blocks(const int *x, int *result, int n) {
    __shared__ int best;
    if (threadIdx.x == 0) best = x[0];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(&best, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(result, best);
}
__global__ void argmax(const float *x, float *values, int *indices, int n) {
    __shared__ float value[BLOCK];
    __shared__ int index[BLOCK];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    value[t] = i < n ? x[i] : -1e30f;
    index[t] = i;
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        __syncthreads();
        if (t < s && value[t + s] > value[t]) {
            value[t] = value[t + s];
            index[t] = index[t + s];
        }
    }
    if (t == 0) {
        values[blockIdx.x] = value[0];
        indices[blockIdx.x] = index[0];
    }
}
__global__ void bitonic_pass(float *dev_values, int j, int k) {
    unsigned int i = threadIdx.x + blockDim.x * blockIdx.x, ixj = i ^ j;
    if (ixj > i) {
        bool up = (i & k) == 0;
        if (up ? dev_values[i] > dev_values[ixj] : dev_values[i] < dev_values[ixj]) {
            float temp = dev_values[i];
            dev_values[i] = dev_values[ixj];
            dev_values[ixj] = temp;
        }
    }
}
__global__ void odd_even_pass(int *x, int phase, int n) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + phase;
    if (i + 1 < n && x[i] > x[i + 1]) {
        int t = x[i];
        x[i] = x[i + 1];
        x[i + 1] = t;
    }
}

// --- arithmetic -----------------------------------------------------------------------------------
__global__ void collatz_steps(int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = i + 1;
    int count = 0;
    while (v != 1) {
        if (v % 2 == 0)
            v = v / 2;
        else
            v = 3 * v + 1;
        count++;
    }
    steps[i] = count;
}
__global__ void is_prime(unsigned char *prime, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool p = i >= 2;
    for (int d = 2; d * d <= i; d++)
        if (i % d == 0) {
            p = false;
            break;
        }
    prime[i] = p;
}
__global__ void mandelbrot_set(int *image, int width, int height, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    float cx = -2.0f + 3.0f * px / width, cy = -1.5f + 3.0f * py / height, x = 0, y = 0;
    int it = 0;
    while (x * x + y * y < 4.0f && it < limit) {
        float t = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = t;
        it++;
    }
    image[py * width + px] = it;
}
__global__ void monte_carlo(unsigned *hits, int samples) {
    unsigned state = 1234567u * (blockIdx.x * blockDim.x + threadIdx.x + 1), inside = 0;
    for (int s = 0; s < samples; s++) {
        state = 1664525u * state + 1013904223u;
        float x = (state >> 8) * (1.0f / 16777216.0f);
        state = 1664525u * state + 1013904223u;
        float y = (state >> 8) * (1.0f / 16777216.0f);
        if (x * x + y * y <= 1.0f) inside++;
    }
    atomicAdd(hits, inside);
}
__global__ void nbody_forces(const float4 *pos, float3 *force, int n) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = pos[i];
    float3 acc = make_float3(0, 0, 0);
    for (int start = 0; start < n; start += blockDim.x) {
        tile[threadIdx.x] = pos[start + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < blockDim.x; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-4f);
            float s = tile[j].w * inv * inv * inv;
            acc.x += dx * s;
            acc.y += dy * s;
            acc.z += dz * s;
        }
        __syncthreads();
    }
    force[i] = acc;
}
__global__ void match_pattern(const char *text, const char *pattern, int *found, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n - m) return;
    int j = 0;
    while (j < m && text[i + j] == pattern[j]) j++;
    found[i] = j == m;
}
__global__ void fft_butterflies(float2 *data, int half) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, k = t % half, top = t / half * 2 * half + k;
    float s, c;
    sincosf(-3.14159265f * k / half, &s, &c);
    float2 a = data[top], b = data[top + half];
    float2 r = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
    data[top] = make_float2(a.x + r.x, a.y + r.y);
    data[top + half] = make_float2(a.x - r.x, a.y - r.y);
}
}

// The second step of sums of columns, in one order.

/// `partial` [parts, width] to `totals` [width]: 32 columns a block of 32 warps.
__global__ void __launch_bounds__(1024) column_totals(const float* partial, float* totals, int parts, int width) {
  __shared__ float room[32][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32;
  float sum = 0.0f;
  if (first + lane < width) {
#pragma unroll 4
    for (int part = warp; part < parts; part += 32) sum += partial[(i64)part * width + first + lane];
  }
  room[warp][lane] = sum;
  __syncthreads();
  sum = warp_sum(room[lane][warp]);
  if (lane == 0 && first + warp < width) totals[first + warp] = sum;
}

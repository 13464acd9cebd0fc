// Batch normalization of rows of channels (channels last), with what follows it in a residual network: the
// addition of another branch, and relu.
//
// A block has 256 threads for `width` packs of neighbouring channels (a power of two) and 256 / width rows at
// a time: blockIdx.y says which channels, blockIdx.x which part of the rows. A thread keeps the numbers of
// its channels in registers. Sums over rows are made in two stages, each in one order: of the rows of a part,
// then of the parts.

constexpr int kNormThreads = 256;

/// The part of a matrix that a thread reads.
struct NormSlice {
  /// Its first channel.
  i64 channel;
  /// Its first row, the one after the last, and the distance between them.
  i64 begin, end;
  int step;
  bool inside;
};

template <int n>
__device__ __forceinline__ NormSlice norm_slice(i64 rows, int channels, int width) {
  const int column = threadIdx.x % width;
  const i64 channel = ((i64)blockIdx.y * width + column) * n;
  const i64 part = (rows + gridDim.x - 1) / gridDim.x, begin = part * blockIdx.x;
  return {channel, begin + threadIdx.x / width, begin + part < rows ? begin + part : rows,
          kNormThreads / width, channel < channels};
}

/// Adds two sums of each channel over the threads that share it, and writes them to `partial`: [parts, 2,
/// channels].
template <int n>
__device__ __forceinline__ void store_partial(const float (&first)[n], const float (&second)[n],
                                              float* partial, int channels, int width) {
  __shared__ float room[kNormThreads * 2 * n];
  float* const mine = room + threadIdx.x * 2 * n;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    mine[i] = first[i];
    mine[n + i] = second[i];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < width * 2 * n; at += kNormThreads) {
    float sum = 0.0f;
    for (int row = 0; row < kNormThreads / width; ++row) sum += room[row * width * 2 * n + at];
    const int column = at / (2 * n), which = at / n % 2;
    const i64 channel = ((i64)blockIdx.y * width + column) * n + at % n;
    if (channel < channels) partial[((i64)blockIdx.x * 2 + which) * channels + channel] = sum;
  }
}

/// Sums of x - pivot and of their squares, where the pivot of a channel is its first value: the variance of
/// values that are far from 0 would lose its digits otherwise.
template <class T>
__global__ void __launch_bounds__(256)
    batch_norm_sums(const T* x, float* partial, i64 rows, int channels, int width) {
  constexpr int n = kPack<T>;
  const NormSlice slice = norm_slice<n>(rows, channels, width);
  float sums[n] = {}, squares[n] = {};
  if (slice.inside) {
    const Pack<T, n> pivot = load(x + slice.channel);
#pragma unroll 4
    for (i64 row = slice.begin; row < slice.end; row += slice.step) {
      const Pack<T, n> pack = load(x + row * channels + slice.channel);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float value = to_float(pack.at[i]) - to_float(pivot.at[i]);
        sums[i] += value;
        squares[i] = fmaf(value, value, squares[i]);
      }
    }
  }
  store_partial<n>(sums, squares, partial, channels, width);
}

/// Both sums of a channel over all parts: 32 channels a block of 1,024 threads. `is_whole` where the thread has
/// them.
struct ChannelSums {
  i64 channel;
  double first, second;
  bool is_whole;
};

__device__ __forceinline__ ChannelSums add_parts(const float* partial, int parts, int channels) {
  constexpr int groups = 32;
  __shared__ double room[2][groups][32];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const i64 channel = (i64)blockIdx.x * 32 + lane;
  double first = 0, second = 0;
  if (channel < channels) {
    for (int part = group; part < parts; part += groups) {
      first += partial[(i64)part * 2 * channels + channel];
      second += partial[((i64)part * 2 + 1) * channels + channel];
    }
  }
  room[0][group][lane] = first;
  room[1][group][lane] = second;
  __syncthreads();
  if (group != 0 || channel >= channels) return {channel, 0, 0, false};
  first = second = 0;
  for (int i = 0; i < groups; ++i) {
    first += room[0][i][lane];
    second += room[1][i][lane];
  }
  return {channel, first, second, true};
}

/// The mean and 1 / the deviation of each channel from the sums of its parts, and the running statistics,
/// which may be null.
template <class T>
__global__ void __launch_bounds__(1024)
    batch_norm_statistics(const float* partial, int parts, const T* x, i64 rows, int channels, float epsilon,
                          float momentum, float* mean, float* inverse, float* running_mean,
                          float* running_variance, i64* batches) {
  const ChannelSums sums = add_parts(partial, parts, channels);
  if (batches != nullptr && blockIdx.x == 0 && threadIdx.x == 0) ++*batches;
  if (!sums.is_whole) return;
  const double shift = sums.first / rows;
  const double variance = sums.second / rows - shift * shift;
  const double middle = to_float(x[sums.channel]) + shift;
  mean[sums.channel] = (float)middle;
  inverse[sums.channel] = (float)(1.0 / sqrt((variance < 0 ? 0 : variance) + epsilon));
  if (running_mean == nullptr) return;
  running_mean[sums.channel] = (1.0f - momentum) * running_mean[sums.channel] + momentum * (float)middle;
  const float unbiased = (float)(variance * rows / (rows - 1));
  running_variance[sums.channel] = (1.0f - momentum) * running_variance[sums.channel] + momentum * unbiased;
}

/// What normalizes the channels of a thread: (x - mean) * scale + bias.
template <int n>
struct NormFactors {
  float mean[n], scale[n], bias[n];
};

template <int n>
__device__ __forceinline__ NormFactors<n> norm_factors(const float* mean, const float* inverse,
                                                       const float* weight, const float* bias, i64 channel) {
  NormFactors<n> factors;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    factors.mean[i] = mean[channel + i];
    factors.scale[i] = inverse[channel + i] * weight[channel + i];
    factors.bias[i] = bias[channel + i];
  }
  return factors;
}

/// y = (x - mean) * inverse * weight + bias, + residual if `adds`, and relu if `relu`.
template <class T, bool adds, bool relu>
__global__ void __launch_bounds__(256)
    batch_norm_apply(const T* x, const T* residual, T* y, const float* mean, const float* inverse,
                     const float* weight, const float* bias, i64 rows, int channels, int width) {
  constexpr int n = kPack<T>;
  const NormSlice slice = norm_slice<n>(rows, channels, width);
  if (!slice.inside) return;
  const NormFactors<n> factors = norm_factors<n>(mean, inverse, weight, bias, slice.channel);
#pragma unroll 2
  for (i64 row = slice.begin; row < slice.end; row += slice.step) {
    const i64 at = row * channels + slice.channel;
    Pack<T, n> pack = load(x + at), other;
    if (adds) other = load(residual + at);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      float value = fmaf(to_float(pack.at[i]) - factors.mean[i], factors.scale[i], factors.bias[i]);
      if (adds) value += to_float(other.at[i]);
      // NaN stays.
      pack.at[i] = rounded<T>(relu && value < 0.0f ? 0.0f : value);
    }
    store(y + at, pack);
  }
}

/// The gradient of a value before relu: 0 where the value was not positive. Where there is no residual, the
/// value is computed again instead of being read.
template <class T, bool adds, bool relu>
__device__ __forceinline__ float before_relu(float gradient, float x, T y, float mean, float scale,
                                             float bias) {
  if (!relu) return gradient;
  const float value = adds ? to_float(y) : to_float(rounded<T>(fmaf(x - mean, scale, bias)));
  return value <= 0.0f ? 0.0f : gradient;
}

/// Sums of the gradient, and of the gradient times x - mean. `y` is read only with a residual and relu.
template <class T, bool adds, bool relu>
__global__ void __launch_bounds__(256, 4)
    batch_norm_gradient_sums(const T* gradient, const T* x, const T* y, const float* mean,
                             const float* inverse, const float* weight, const float* bias, float* partial,
                             i64 rows, int channels, int width) {
  constexpr int n = kPack<T>;
  const NormSlice slice = norm_slice<n>(rows, channels, width);
  float sums[n] = {}, products[n] = {};
  if (slice.inside) {
    const NormFactors<n> factors = norm_factors<n>(mean, inverse, weight, bias, slice.channel);
    for (i64 row = slice.begin; row < slice.end; row += slice.step) {
      const i64 at = row * channels + slice.channel;
      const Pack<T, n> pack = load(gradient + at), input = load(x + at);
      Pack<T, n> output = input;
      if (adds && relu) output = load(y + at);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float value = to_float(input.at[i]);
        const float each = before_relu<T, adds, relu>(to_float(pack.at[i]), value, output.at[i],
                                                      factors.mean[i], factors.scale[i], factors.bias[i]);
        sums[i] += each;
        products[i] = fmaf(each, value - factors.mean[i], products[i]);
      }
    }
  }
  store_partial<n>(sums, products, partial, channels, width);
}

/// The gradients of weight and bias, and the two numbers of each channel that the gradient of x needs: the
/// mean of the gradient, and that of its product with x - mean over the variance.
template <class T>
__global__ void __launch_bounds__(1024)
    batch_norm_gradient_parts(const float* partial, int parts, const float* inverse, i64 rows, int channels,
                              T* of_weight, T* of_bias, T* mean_gradient, T* slope) {
  const ChannelSums sums = add_parts(partial, parts, channels);
  if (!sums.is_whole) return;
  const double factor = inverse[sums.channel];
  of_bias[sums.channel] = (T)sums.first;
  of_weight[sums.channel] = (T)(sums.second * factor);
  mean_gradient[sums.channel] = (T)(sums.first / rows);
  slope[sums.channel] = (T)(sums.second * factor * factor / rows);
}

/// The gradient of x, and with a residual and relu the one of the residual.
template <class T, bool adds, bool relu>
__global__ void __launch_bounds__(256)
    batch_norm_gradients(const T* gradient, const T* x, const T* y, const float* mean, const float* inverse,
                         const float* weight, const float* bias, const float* mean_gradient,
                         const float* slope, T* of_x, T* of_residual, i64 rows, int channels, int width) {
  constexpr int n = kPack<T>;
  const NormSlice slice = norm_slice<n>(rows, channels, width);
  if (!slice.inside) return;
  const NormFactors<n> factors = norm_factors<n>(mean, inverse, weight, bias, slice.channel);
  float middle[n], steep[n];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    middle[i] = mean_gradient[slice.channel + i];
    steep[i] = slope[slice.channel + i];
  }
  for (i64 row = slice.begin; row < slice.end; row += slice.step) {
    const i64 at = row * channels + slice.channel;
    const Pack<T, n> pack = load(gradient + at), input = load(x + at);
    Pack<T, n> output = input, result, masked;
    if (adds && relu) output = load(y + at);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float value = to_float(input.at[i]);
      const float each = before_relu<T, adds, relu>(to_float(pack.at[i]), value, output.at[i],
                                                    factors.mean[i], factors.scale[i], factors.bias[i]);
      const float centred = fmaf(value - factors.mean[i], -steep[i], each - middle[i]);
      result.at[i] = rounded<T>(factors.scale[i] * centred);
      masked.at[i] = rounded<T>(each);
    }
    store(of_x + at, result);
    if (adds && relu) store(of_residual + at, masked);
  }
}

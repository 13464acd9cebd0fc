// One step of Adam or AdamW for many tensors, whose addresses are in the kernel's arguments: a block does a
// part of one tensor. The operations, their order and their rounding are meant to be those of LibTorch's fused
// kernels, for the same bits; they are written out because a compiler may join products and sums as it likes.
// Whether the bits are the same is tested on each card before the first use (optim/flat_adam_check.cpp).

/// What all threads of a block compute with.
struct AdamShared {
  float rate, step_size, root_correction, factor;
};

constexpr int kAdamThreads = 256;
/// Elements of a block.
constexpr int kAdamPart = kAdamThreads * 4 * 8;

__device__ __forceinline__ AdamShared adam_shared(const AdamScalars& numbers) {
  AdamShared scalars;
  scalars.rate = numbers.rate_there != nullptr ? *numbers.rate_there : numbers.rate;
  float step = numbers.step_there != nullptr ? *numbers.step_there : numbers.step;
  if (numbers.left_out != nullptr) step = step - *numbers.left_out;
  const float correction1 = 1.0f - powf(numbers.beta1, step);
  const float correction2 = 1.0f - powf(numbers.beta2, step);
  scalars.step_size = __fdiv_rn(scalars.rate, correction1);
  scalars.root_correction = __fsqrt_rn(correction2);
  scalars.factor = numbers.factor != nullptr ? *numbers.factor : 1.0f;
  return scalars;
}

struct AdamValues {
  float parameter, average, square, maximum;
};

template <bool decoupled, bool amsgrad, bool maximize>
__device__ __forceinline__ void adam_update(AdamValues& values, float gradient, const AdamScalars& numbers,
                                            const AdamShared& scalars) {
  if (numbers.factor != nullptr) gradient = __fmul_rn(gradient, scalars.factor);
  if (maximize) gradient = -gradient;
  if (numbers.weight_decay != 0.0f) {
    if (decoupled) {
      values.parameter = fmaf(-__fmul_rn(scalars.rate, numbers.weight_decay), values.parameter, values.parameter);
    } else {
      gradient = fmaf(values.parameter, numbers.weight_decay, gradient);
    }
  }
  const float squared = __fmul_rn(gradient, gradient);
  values.average = fmaf(numbers.beta1, values.average, fmaf(-numbers.beta1, gradient, gradient));
  values.square = fmaf(numbers.beta2, values.square, fmaf(-numbers.beta2, squared, squared));
  float largest = values.square;
  if (amsgrad) {
    // As std::max(maximum, square): a NaN of the maximum stays, and one of the square is passed over.
    if (!(values.maximum < values.square)) largest = values.maximum;
    values.maximum = largest;
  }
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(largest), scalars.root_correction), numbers.eps);
  values.parameter =
      __fsub_rn(values.parameter, __fdiv_rn(__fmul_rn(scalars.step_size, values.average), denominator));
}

template <bool decoupled, bool amsgrad, bool maximize>
__global__ void __launch_bounds__(kAdamThreads) adam(const __grid_constant__ AdamTensors tensors,
                                                      const __grid_constant__ AdamScalars numbers) {
  if (numbers.found_inf != nullptr && *numbers.found_inf == 1.0f) return;
  __shared__ AdamShared shared;
  if (threadIdx.x == 0) shared = adam_shared(numbers);
  __syncthreads();
  const AdamShared scalars = shared;
  const i64 block = blockIdx.x;
  const AdamTensor& tensor = tensors.at[tensor_of_block(tensors, block)];
  const i64 begin = (block - tensor.first_block) * kAdamPart;
  const i64 end = begin + kAdamPart < tensor.size ? begin + kAdamPart : tensor.size;
  const bool is_aligned = ((u64)tensor.parameter | (u64)tensor.gradient | (u64)tensor.average |
                           (u64)tensor.square | (u64)tensor.maximum) % 16 == 0;
  const i64 whole = is_aligned ? begin + (end - begin) / 4 * 4 : begin;
  for (i64 at = begin + threadIdx.x * 4; at < whole; at += kAdamThreads * 4) {
    Pack<float, 4> parameters = load<float, 4>(tensor.parameter + at);
    const Pack<float, 4> gradients = load<float, 4>(tensor.gradient + at);
    Pack<float, 4> averages = load<float, 4>(tensor.average + at);
    Pack<float, 4> squares = load<float, 4>(tensor.square + at);
    Pack<float, 4> maxima = squares;
    if (amsgrad) maxima = load<float, 4>(tensor.maximum + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      AdamValues values = {parameters.at[i], averages.at[i], squares.at[i], maxima.at[i]};
      adam_update<decoupled, amsgrad, maximize>(values, gradients.at[i], numbers, scalars);
      parameters.at[i] = values.parameter;
      averages.at[i] = values.average;
      squares.at[i] = values.square;
      maxima.at[i] = values.maximum;
    }
    store(tensor.parameter + at, parameters);
    store(tensor.average + at, averages);
    store(tensor.square + at, squares);
    if (amsgrad) store(tensor.maximum + at, maxima);
  }
  for (i64 at = whole + threadIdx.x; at < end; at += kAdamThreads) {
    AdamValues values = {tensor.parameter[at], tensor.average[at], tensor.square[at],
                         amsgrad ? tensor.maximum[at] : 0.0f};
    adam_update<decoupled, amsgrad, maximize>(values, tensor.gradient[at], numbers, scalars);
    tensor.parameter[at] = values.parameter;
    tensor.average[at] = values.average;
    tensor.square[at] = values.square;
    if (amsgrad) tensor.maximum[at] = values.maximum;
  }
}

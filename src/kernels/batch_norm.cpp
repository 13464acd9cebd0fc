#include "kernels/batch_norm.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/aligned.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kNormThreads = 256;
/// Blocks of a multiprocessor at a time.
constexpr int kNormBlocks = 8;
/// Elements of 16 bits that a thread reads at once, and the most threads beside each other in a row.
constexpr std::int64_t kPack = 8, kWidest = 32;
constexpr std::int64_t kRowsOfThread = 4;
/// Of the kernels that add the parts, for 32 channels a block.
constexpr int kPartThreads = 1024;
constexpr auto kLast = at::MemoryFormat::ChannelsLast;

/// Of one dtype, with or without a residual and relu.
struct NormKernels {
  const CudaKernel *sums, *statistics, *apply, *gradient_sums, *gradient_parts, *gradients;

  /// Whether all are there.
  explicit operator bool() const {
    return sums && statistics && apply && gradient_sums && gradient_parts && gradients;
  }
};

NormKernels load_norm_kernels(const at::Tensor& input, bool adds, bool relu) {
  const std::string type = cuda_type(input.scalar_type()), kind = fmt::format("{}, {}, {}", type, adds, relu);
  const auto find = [&](const char* name, const std::string& arguments) {
    return find_kernel("batch_norm", fmt::format("{}<{}>", name, arguments), input.device());
  };
  return {.sums = find("batch_norm_sums", type),
          .statistics = find("batch_norm_statistics", type),
          .apply = find("batch_norm_apply", kind),
          .gradient_sums = find("batch_norm_gradient_sums", kind),
          .gradient_parts = find("batch_norm_gradient_parts", "float"),
          .gradients = find("batch_norm_gradients", kind)};
}

NormKernels norm_kernels(const at::Tensor& input, bool adds, bool relu) {
  thread_local Remembered<NormKernels, int, at::ScalarType, bool, bool> known;
  return known.get({input.device().index(), input.scalar_type(), adds, relu},
                   [&] { return load_norm_kernels(input, adds, relu); });
}

/// How a matrix [rows, channels] is divided among the blocks.
struct NormGrid {
  std::int64_t rows;
  int channels, width;
  Grid grid;

  explicit NormGrid(const at::Tensor& input)
      : rows(input.numel() / input.size(1)), channels(static_cast<int>(input.size(1))), width(1) {
    const std::int64_t packs = channels / kPack;
    while (width < kWidest && width < packs) width *= 2;
    const std::int64_t tiles = (packs + width - 1) / width, rows_at_a_time = kNormThreads / width;
    const std::int64_t wanted = std::int64_t{kNormBlocks} * multiprocessors(input.device()) / tiles;
    // Fewer rows a thread would make the sums over the parts as long as those over the rows.
    const std::int64_t most = std::max<std::int64_t>(rows / (rows_at_a_time * kRowsOfThread), 1);
    grid = {.blocks = std::clamp<std::int64_t>(wanted, 1, most),
            .threads = kNormThreads,
            .blocks_y = static_cast<int>(tiles)};
  }

  at::Tensor partial(const at::Tensor& input) const {
    return at::empty({grid.blocks, 2, channels}, input.options().dtype(at::kFloat).requires_grad(false));
  }
  /// Of the kernels that add the parts.
  Grid of_channels() const { return {.blocks = (channels + 31) / 32, .threads = kPartThreads}; }
  int parts() const { return static_cast<int>(grid.blocks); }
};

template <class T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

void bump(const at::Tensor& tensor) {
  if (tensor.defined()) tensor.unsafeGetTensorImpl()->bump_version();
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::optional<at::Tensor>& residual, const BatchNorm& norm, bool relu) {
    const NormGrid sizes(input);
    const bool adds = residual.has_value();
    const at::Tensor partial = sizes.partial(input), mean = at::empty({sizes.channels}, partial.options()),
                     inverse = at::empty_like(mean), output = at::empty_like(input);
    const NormKernels kernels = norm_kernels(input, adds, relu);
    kernels.sums->launch(sizes.grid, input.const_data_ptr(), partial.mutable_data_ptr(), sizes.rows,
                         sizes.channels, sizes.width);
    kernels.statistics->launch(
        sizes.of_channels(), partial.const_data_ptr(), sizes.parts(), input.const_data_ptr(), sizes.rows,
        sizes.channels, static_cast<float>(norm.eps), static_cast<float>(norm.momentum),
        mean.mutable_data_ptr(), inverse.mutable_data_ptr(), data_or_null<float>(norm.running_mean),
        data_or_null<float>(norm.running_var), data_or_null<std::int64_t>(norm.num_batches_tracked));
    kernels.apply->launch(sizes.grid, input.const_data_ptr(), adds ? residual->const_data_ptr() : nullptr,
                          output.mutable_data_ptr(), mean.const_data_ptr(), inverse.const_data_ptr(),
                          weight.const_data_ptr(), bias.const_data_ptr(), sizes.rows, sizes.channels,
                          sizes.width);
    for (const auto* changed : {&norm.running_mean, &norm.running_var, &norm.num_batches_tracked})
      bump(*changed);
    // Without a residual, relu's mask is computed from the input again.
    context->save_for_backward({input, weight, bias, mean, inverse, adds && relu ? output : at::Tensor()});
    context->saved_data["adds"] = adds;
    context->saved_data["relu"] = relu;
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivatives("batch normalization");
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3],
                     &inverse = saved[4], &output = saved[5];
    const bool adds = context->saved_data["adds"].toBool(), relu = context->saved_data["relu"].toBool();
    const NormGrid sizes(input);
    at::Tensor given = gradients[0].to(input.scalar_type()).contiguous(kLast);
    if (!is_aligned(given)) given = given.clone();
    const at::Tensor partial = sizes.partial(input), of_weight = at::empty_like(mean),
                     of_bias = at::empty_like(mean), mean_gradient = at::empty_like(mean),
                     slope = at::empty_like(mean), of_input = at::empty_like(input),
                     of_residual = adds && relu ? at::empty_like(input) : at::Tensor();
    const void* const y = output.defined() ? output.const_data_ptr() : nullptr;
    const NormKernels kernels = norm_kernels(input, adds, relu);
    kernels.gradient_sums->launch(sizes.grid, given.const_data_ptr(), input.const_data_ptr(), y,
                                  mean.const_data_ptr(), inverse.const_data_ptr(), weight.const_data_ptr(),
                                  bias.const_data_ptr(), partial.mutable_data_ptr(), sizes.rows,
                                  sizes.channels, sizes.width);
    kernels.gradient_parts->launch(sizes.of_channels(), partial.const_data_ptr(), sizes.parts(),
                                   inverse.const_data_ptr(), sizes.rows, sizes.channels,
                                   of_weight.mutable_data_ptr(), of_bias.mutable_data_ptr(),
                                   mean_gradient.mutable_data_ptr(), slope.mutable_data_ptr());
    kernels.gradients->launch(
        sizes.grid, given.const_data_ptr(), input.const_data_ptr(), y, mean.const_data_ptr(),
        inverse.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(),
        mean_gradient.const_data_ptr(), slope.const_data_ptr(), of_input.mutable_data_ptr(),
        adds && relu ? of_residual.mutable_data_ptr() : nullptr, sizes.rows, sizes.channels, sizes.width);
    return {of_input, of_weight, of_bias, adds && !relu ? given : of_residual, {}, {}};
  }
};

bool is_float(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.device() == input.device() &&
         tensor.is_contiguous() && tensor.numel() == input.size(1);
}

bool is_count(const at::Tensor& tensor, const at::Tensor& input) {
  return !tensor.defined() || (tensor.scalar_type() == at::kLong && tensor.device() == input.device());
}

bool is_matrix_of_channels(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype && tensor.dim() == 4 && tensor.is_contiguous(kLast) &&
         is_aligned(tensor);
}

}  // namespace

bool takes_batch_norm(const BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual, bool relu) {
  const auto dtype = fused_dtype(input);
  if (!dtype || !is_matrix_of_channels(input, *dtype)) return false;
  if (residual.defined() && (!is_matrix_of_channels(residual, *dtype) || residual.sizes() != input.sizes() ||
                             residual.device() != input.device()))
    return false;
  const std::int64_t channels = input.size(1), rows = channels > 0 ? input.numel() / channels : 0;
  const bool fits = channels % kPack == 0 && channels <= std::numeric_limits<int>::max() / 2 && rows > 1;
  const bool tracks = norm.running_mean.defined();
  return fits && is_float(norm.weight, input) && is_float(norm.bias, input) &&
         (!tracks || (is_float(norm.running_mean, input) && is_float(norm.running_var, input))) &&
         is_count(norm.num_batches_tracked, input) &&
         static_cast<bool>(norm_kernels(input, residual.defined(), relu));
}

at::Tensor batch_norm(const BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual, bool relu) {
  const auto branch = residual.defined() ? std::optional(residual) : std::nullopt;
  return FusedBatchNorm::apply(input, norm.weight, norm.bias, branch, norm, relu);
}

}  // namespace lockstep::kernels

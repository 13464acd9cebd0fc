#include "models/vision_functions.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "models/attention.hpp"

namespace lockstep::models {

void check_pixel_values(const char* model, const at::Tensor& pixel_values, std::int64_t channels,
                        std::int64_t height, std::int64_t width) {
  const bool fits = pixel_values.defined() && pixel_values.dim() == 4 && pixel_values.is_floating_point() &&
                    pixel_values.size(1) == channels && pixel_values.size(2) >= height &&
                    pixel_values.size(3) >= width;
  if (fits) return;
  throw UsageError(fmt::format(
      "{} takes images in floating point, [rows, {}, height, width] of at least {} x {} pixels; got {}",
      model, channels, height, width,
      pixel_values.defined() ? fmt::format("{} {}", pixel_values.toString(), c10::str(pixel_values.sizes()))
                             : "an undefined tensor"));
}

at::Tensor drop_path(const at::Tensor& branch, double probability, bool is_training) {
  if (probability == 0 || !is_training) return branch;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(branch.dim()), 1);
  sizes[0] = branch.size(0);
  const double kept = 1 - probability;
  return branch.div(kept) * at::rand(sizes, branch.options()).add(kept).floor();
}

void initialize_vision(torch::nn::Module& module, double spread) {
  initialize(module, spread);
  auto* conv = module.as<torch::nn::Conv2dImpl>();
  if (conv == nullptr) return;
  const at::NoGradGuard no_grad;
  parallel::set_initial_values(
      conv->weight, [&](const at::Tensor& weight) { torch::nn::init::normal_(weight, 0, spread); });
  if (conv->bias.defined())
    parallel::set_initial_values(conv->bias, [](const at::Tensor& bias) { bias.zero_(); });
}

}  // namespace lockstep::models

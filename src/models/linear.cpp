#include "lockstep/models/linear.hpp"

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

/// A linear layer without bias for an adapter.
torch::nn::Linear thin_layer(std::int64_t inputs, std::int64_t outputs) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(false));
}

}  // namespace

// The order of random numbers is PEFT's: both layers as they are by default, then the beginning proper.
void LoraLayer::add_adapter(const Adapter& adapter, std::shared_ptr<const LoraConfig> config) {
  if (has_adapter()) throw UsageError("the layer has an adapter already");
  const auto [inputs, outputs] = sizes();
  torch::nn::Linear down = thin_layer(inputs, adapter.r), up = thin_layer(adapter.r, outputs);
  if (adapter.init == LoraInit::kaiming) torch::nn::init::kaiming_uniform_(down->weight, std::sqrt(5.0));
  if (adapter.init == LoraInit::gaussian)
    torch::nn::init::normal_(down->weight, 0, 1.0 / static_cast<double>(adapter.r));
  if (adapter.init != LoraInit::both_random) torch::nn::init::zeros_(up->weight);
  const auto dtype = own_weight().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  for (auto& layer : {down, up}) layer.ptr()->to(own_weight().device(), dtype);
  down_ = module().register_module("lora_A", down);
  up_ = module().register_module("lora_B", up);
  adapter_ = adapter;
  is_on_ = true;
  config_ = std::move(config);
}

bool LoraLayer::is_adapter_whole() const {
  const auto [inputs, outputs] = sizes();
  return has_adapter() && down_->weight.sizes() == at::IntArrayRef{adapter_.r, inputs} &&
         up_->weight.sizes() == at::IntArrayRef{outputs, adapter_.r};
}

void LoraLayer::merge_adapter() {
  const at::NoGradGuard no_grad;
  at::Tensor product = at::matmul(up_->weight, down_->weight) * adapter_.scaling;
  if (has_turned_weight()) product = product.t();
  const at::Tensor weight = own_weight().detach();
  weight.copy_(weight.to(product.scalar_type()) + product);
  remove_adapter();
}

void LoraLayer::remove_adapter() {
  module().unregister_module("lora_A");
  module().unregister_module("lora_B");
  down_ = nullptr;
  up_ = nullptr;
  config_ = nullptr;
}

at::Tensor LoraLayer::adapted(const at::Tensor& input, const at::Tensor& output) {
  if (!has_adapter() || !is_on_) return output;
  at::Tensor values = input.to(down_->weight.scalar_type());
  if (adapter_.dropout > 0) values = at::dropout(values, adapter_.dropout, module().is_training());
  return (output + up_(down_(values)) * adapter_.scaling).to(output.scalar_type());
}

at::Tensor LinearImpl::forward(const at::Tensor& input) {
  return adapted(input, torch::nn::LinearImpl::forward(input));
}

Conv1DImpl::Conv1DImpl(std::int64_t inputs, std::int64_t outputs, double spread)
    : inputs_(inputs), outputs_(outputs) {
  weight_ = register_parameter("weight", torch::empty({inputs, outputs}));
  bias_ = register_parameter("bias", torch::zeros({outputs}));
  torch::nn::init::normal_(weight_, 0, spread);
}

at::Tensor Conv1DImpl::forward(const at::Tensor& input) {
  const auto flat = at::addmm(bias_, input.reshape({-1, input.size(-1)}), weight_);
  return adapted(input, flat.view({input.size(0), input.size(1), -1}));
}

}  // namespace lockstep::models

#include "lockstep/models/linear.hpp"

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "kernels/fused_kernels.hpp"
#include "kernels/linear.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/lora.hpp"
#include "models/attention.hpp"
#include "models/nf4_layers.hpp"
#include "models/packed_product.hpp"
#include "models/split_columns.hpp"

namespace lockstep::models {
namespace {

/// A linear layer without bias for an adapter.
torch::nn::Linear thin_layer(std::int64_t inputs, std::int64_t outputs) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(false));
}

at::ScalarType adapter_dtype(const at::Tensor& weight) {
  return weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<at::Tensor> biases_of(const at::Tensor& bias) {
  return bias.defined() ? std::vector{bias} : std::vector<at::Tensor>();
}

/// Of activate(); nothing for one that no kernel of a linear layer has.
std::optional<kernels::Activation> fused_activation(const std::string& name) {
  if (name == "gelu") return kernels::Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return kernels::Activation::gelu_tanh;
  return std::nullopt;
}

}  // namespace

void LoraLayer::add_adapter(const Adapter& adapter, std::shared_ptr<const LoraConfig> config) {
  if (has_adapter()) throw UsageError("the layer has an adapter already");
  is_embedding() ? add_tables(adapter) : add_matrices(adapter);
  adapter_ = adapter;
  is_on_ = true;
  config_ = std::move(config);
}

// The order of random numbers is PEFT's: both layers as they are by default, then the beginning proper.
void LoraLayer::add_matrices(const Adapter& adapter) {
  const auto [inputs, outputs] = sizes();
  torch::nn::Linear down = thin_layer(inputs, adapter.r), up = thin_layer(adapter.r, outputs);
  if (adapter.init == LoraInit::kaiming) torch::nn::init::kaiming_uniform_(down->weight, std::sqrt(5.0));
  if (adapter.init == LoraInit::gaussian)
    torch::nn::init::normal_(down->weight, 0, 1.0 / static_cast<double>(adapter.r));
  if (adapter.init != LoraInit::both_random) torch::nn::init::zeros_(up->weight);
  for (auto& layer : {down, up}) layer.ptr()->to(own_weight().device(), adapter_dtype(own_weight()));
  down_ = module().register_module("lora_A", down);
  up_ = module().register_module("lora_B", up);
}

// The other way round than of linear layers: A begins with zeros.
void LoraLayer::add_tables(const Adapter& adapter) {
  const auto [rows, width] = sizes();
  at::Tensor a = at::randn({adapter.r, rows}), b = at::randn({width, adapter.r});
  if (adapter.init != LoraInit::both_random) {
    a.zero_();
    b.normal_();
  }
  const auto options = own_weight().options().dtype(adapter_dtype(own_weight()));
  table_a_ = module().register_parameter("lora_embedding_A", a.to(options));
  table_b_ = module().register_parameter("lora_embedding_B", b.to(options));
}

void LoraLayer::forget_parameter(const std::string&) {}

parallel::AdapterForm LoraLayer::adapter_form(torch::nn::Module& model) const {
  const auto config = lora_of(model);
  return {.tensors = adapter_state(model),
          .prefix = kAdapterPrefix,
          .config = config->to_json(),
          .base = config->base_model_name_or_path};
}

bool LoraLayer::is_adapter_whole() const {
  const auto [inputs, outputs] = sizes();
  return has_adapter() && matrix_a().sizes() == at::IntArrayRef{adapter_.r, inputs} &&
         matrix_b().sizes() == at::IntArrayRef{outputs, adapter_.r};
}

bool LoraLayer::is_whole() const {
  const auto [inputs, outputs] = sizes();
  std::vector<std::int64_t> whole{outputs, inputs};
  if (has_turned_weight()) whole = {inputs, outputs};
  if (own_weight().scalar_type() == at::kByte) whole = {(outputs * inputs + 1) / 2, 1};
  return is_adapter_whole() && own_weight().sizes() == at::IntArrayRef(whole);
}

const void* LoraLayer::weight_implementation() const { return own_weight().unsafeGetTensorImpl(); }

void LoraLayer::merge_adapter(bool is_shared) {
  const at::NoGradGuard no_grad;
  if (const auto state = nf4_state(module())) {
    const Nf4Weight weight = state->weight_of(own_weight());
    set_own_weight(dequantize_nf4(weight, weight.dtype).set_requires_grad(false));
    module().unregister_module("weight");
  } else if (is_shared)
    set_own_weight(own_weight().detach().clone().set_requires_grad(own_weight().requires_grad()));
  at::Tensor product = at::matmul(matrix_b(), matrix_a()) * adapter_.scaling;
  if (has_turned_weight()) product = product.t();
  const at::Tensor weight = own_weight().detach();
  weight.copy_(weight.to(product.scalar_type()) + product);
  remove_adapter();
}

void LoraLayer::remove_adapter() {
  if (is_embedding()) {
    for (const char* name : {"lora_embedding_A", "lora_embedding_B"}) forget_parameter(name);
    table_a_ = table_b_ = at::Tensor();
  } else {
    for (const char* name : {"lora_A", "lora_B"}) module().unregister_module(name);
    down_ = nullptr;
    up_ = nullptr;
  }
  config_ = nullptr;
}

at::Tensor LoraLayer::adapted(const at::Tensor& input, const at::Tensor& output) {
  if (!has_adapter() || !is_on_) return output;
  at::Tensor values = input.to(down_->weight.scalar_type());
  if (adapter_.dropout > 0) values = at::dropout(values, adapter_.dropout, module().is_training());
  return (output + up_(down_(values)) * adapter_.scaling).to(output.scalar_type());
}

at::Tensor LoraLayer::added_to_rows(const at::Tensor& ids, std::int64_t padding_idx) const {
  if (!has_adapter() || !is_on_) return {};
  const at::Tensor thin = at::embedding(table_a_.t(), ids, padding_idx);
  return at::matmul(thin, table_b_.t()) * adapter_.scaling;
}

at::Tensor LinearImpl::forward(const at::Tensor& input) {
  if (const auto state = nf4_state(*this)) return adapted(input, nf4_linear(input, *this, *state));
  if (const auto dtype = kernels::fused_dtype(input); dtype && input.numel() > 0)
    return adapted(input, kernels::linear(input, {weight}, biases_of(bias), *dtype));
  return adapted(input, torch::nn::LinearImpl::forward(input));
}

at::Tensor LinearImpl::activated(const at::Tensor& input, const std::string& activation) {
  const auto fused = fused_activation(activation);
  const bool is_plain = !has_adapter() && weight.is_floating_point();
  if (const auto dtype = kernels::fused_dtype(input); dtype && fused && is_plain && input.numel() > 0)
    return kernels::linear(input, {weight}, biases_of(bias), *dtype, {.activation = *fused});
  return activate(activation, forward(input));
}

Conv1DImpl::Conv1DImpl(std::int64_t inputs, std::int64_t outputs, double spread)
    : inputs_(inputs), outputs_(outputs) {
  weight_ = register_parameter("weight", torch::empty({inputs, outputs}));
  bias_ = register_parameter("bias", torch::zeros({outputs}));
  torch::nn::init::normal_(weight_, 0, spread);
}

at::Tensor Conv1DImpl::forward(const at::Tensor& input) {
  if (const auto dtype = kernels::fused_dtype(input); dtype && input.numel() > 0)
    return adapted(input, kernels::linear(input, {weight_}, {bias_}, *dtype, {.is_turned = true}));
  const auto flat = at::addmm(bias_, input.reshape({-1, input.size(-1)}), weight_);
  return adapted(input, flat.view({input.size(0), input.size(1), -1}));
}

at::Tensor Conv1DImpl::activated(const at::Tensor& input, const std::string& activation) {
  const auto fused = fused_activation(activation);
  if (const auto dtype = kernels::fused_dtype(input); dtype && fused && !has_adapter() && input.numel() > 0)
    return kernels::linear(input, {weight_}, {bias_}, *dtype, {.is_turned = true, .activation = *fused});
  return activate(activation, forward(input));
}

std::vector<at::Tensor> packed_forward(const at::Tensor& input, const std::vector<Linear>& layers) {
  const at::Tensor packed = packed_product(input, layers);
  std::vector<at::Tensor> outputs;
  std::vector<std::int64_t> sizes;
  for (Linear layer : layers) {
    if (!packed.defined()) outputs.push_back(layer(input));
    sizes.push_back(layer->weight.size(0));
  }
  return packed.defined() ? split_columns(packed, sizes) : outputs;
}

}  // namespace lockstep::models

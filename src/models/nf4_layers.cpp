#include "models/nf4_layers.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Fields = nlohmann::ordered_json;

/// Of the innermost WeightsQuantization of this thread.
thread_local std::optional<Nf4Options> weights_quantization;

const char* kTextName = "bitsandbytes__nf4";

std::int64_t blocks_of(std::int64_t elements, std::int64_t size) { return (elements + size - 1) / size; }

/// As Python writes a float.
std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

const char* name_of_dtype(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
}

at::Tensor on_device_of(at::Tensor& values, const at::Tensor& other) {
  if (values.defined() && values.device() != other.device()) values = values.to(other.device());
  return values;
}

void keep_weight(AutogradContext* context, const Nf4Weight& weight) {
  auto& data = context->saved_data;
  // Without a copy: fully_shard() frees and gathers the memory.
  data["packed"] = weight.packed.detach();
  data["absmax"] = weight.absmax.detach();
  if (weight.nested_absmax.defined()) data["nested_absmax"] = weight.nested_absmax.detach();
  data["offset"] = weight.offset;
  data["sizes"] = weight.sizes;
}

Nf4Weight kept_weight(AutogradContext* context) {
  auto& data = context->saved_data;
  Nf4Weight weight{.packed = data["packed"].toTensor(),
                   .absmax = data["absmax"].toTensor(),
                   .offset = data["offset"].toDouble(),
                   .sizes = data["sizes"].toIntVector()};
  if (data.find("nested_absmax") != data.end()) weight.nested_absmax = data["nested_absmax"].toTensor();
  return weight;
}

/// `input` times the weight, which neither forward nor backward keeps in `input`'s dtype.
class Nf4Product : public torch::autograd::Function<Nf4Product> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList biases,
                            const Nf4Weight& weight) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    keep_weight(context, weight);
    context->saved_data["biases"] = static_cast<std::int64_t>(biases.size());
    const at::Tensor whole = dequantize_nf4(weight, input.scalar_type());
    return biases.empty() ? at::linear(input, whole) : at::linear(input, whole, biases[0]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    kernels::refuse_second_derivatives("a quantized layer");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto biases = static_cast<std::size_t>(context->saved_data["biases"].toInt());
    variable_list results(1 + biases + 1);
    const at::Tensor& gradient = gradients[0];
    if (context->needs_input_grad(0))
      results[0] = at::matmul(gradient, dequantize_nf4(kept_weight(context), gradient.scalar_type()));
    if (biases > 0 && context->needs_input_grad(1))
      results[1] = gradient.reshape({-1, gradient.size(-1)}).sum(0);
    return results;
  }
};

/// The dtype of products.
at::ScalarType nf4_product_dtype(const at::Tensor& input, const Nf4Options& options) {
  if (options.compute_dtype) return *options.compute_dtype;
  const auto device = input.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : input.scalar_type();
}

}  // namespace

Nf4StateImpl::Nf4StateImpl(std::int64_t outputs, std::int64_t inputs, const Nf4Options& options,
                           at::ScalarType dtype, const at::Device& device)
    : torch::nn::Module("Nf4State"),
      options_(options),
      form_{.packed = {}, .absmax = {}, .sizes = {outputs, inputs}, .dtype = dtype} {
  const auto floats = at::TensorOptions(at::kFloat).device(device);
  const auto blocks = blocks_of(outputs * inputs, kNf4Block);
  const auto kept = [&](const char* name, const at::Tensor& values) {
    register_buffer(name, values);
    return values.detach();
  };
  if (options.double_quant) {
    absmax_ = register_parameter("absmax", at::zeros({blocks}, floats.dtype(at::kByte)),
                                 /*requires_grad=*/false);
    nested_absmax_ = kept("nested_absmax", at::zeros({blocks_of(blocks, kNf4NestedBlock)}, floats));
    nested_levels_ = kept("nested_quant_map", nested_levels().to(device, at::kFloat, false, /*copy=*/true));
  } else {
    absmax_ = kept("absmax", at::zeros({blocks}, floats));
  }
  levels_ = kept("quant_map", nf4_levels().to(device, at::kFloat, false, /*copy=*/true));
  text_ = register_module("quant_state", std::make_shared<torch::nn::Module>("QuantState"));
}

Nf4Weight Nf4StateImpl::weight_of(const at::Tensor& packed) const {
  if (packed.scalar_type() != at::kByte ||
      absmax_.scalar_type() != (options_.double_quant ? at::kByte : at::kFloat))
    throw UsageError(
        "the weights of a quantized layer were converted by to(): give the dtype to from_pretrained(), and "
        "move "
        "the model with to(device)");
  Nf4Weight weight = form_;
  weight.packed = packed;
  auto& self = const_cast<Nf4StateImpl&>(*this);
  weight.absmax = options_.double_quant ? absmax_ : on_device_of(self.absmax_, packed);
  weight.nested_absmax = on_device_of(self.nested_absmax_, packed);
  return weight;
}

void Nf4StateImpl::set(const Nf4Weight& weight) {
  const at::NoGradGuard no_grad;
  form_.offset = weight.offset;
  form_.dtype = weight.dtype;
  if (options_.double_quant) {
    parallel::set_initial_values(absmax_, [&](const at::Tensor& values) { values.copy_(weight.absmax); });
    nested_absmax_.copy_(weight.nested_absmax);
  } else {
    absmax_.copy_(weight.absmax);
  }
  write_text();
}

void Nf4StateImpl::write_text() {
  std::string text =
      fmt::format(R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "{}", "shape": [{}, {}])", kNf4Block,
                  name_of_dtype(form_.dtype), form_.sizes[0], form_.sizes[1]);
  if (options_.double_quant)
    text += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                        kNf4NestedBlock, python_float(form_.offset));
  text += "}";
  const at::Tensor bytes = at::from_blob(text.data(), {std::ssize(text)}, at::TensorOptions(at::kByte))
                               .clone()
                               .to(levels_.device());
  auto buffers = text_->named_buffers(/*recurse=*/false);
  if (auto* known = buffers.find(kTextName)) {
    known->set_data(bytes);
  } else {
    text_->register_buffer(kTextName, bytes);
  }
}

void Nf4StateImpl::read_text(const at::Tensor& bytes, const std::string& layer) {
  const at::Tensor flat = bytes.to(at::kCPU, at::kByte).contiguous();
  const std::string_view text(reinterpret_cast<const char*>(flat.data_ptr<std::uint8_t>()),
                              static_cast<std::size_t>(flat.numel()));
  const std::string name = layer + ".weight.quant_state." + kTextName;
  const Fields fields = json_tree::parse<Fields>(text, fmt::format("'{}'", name));
  const auto fail = [&](const char* field, const std::string& expected) {
    throw DataError(fmt::format(
        "'{}': the field '{}' is {}, expected {}", name, field,
        fields.is_object() && fields.contains(field) ? json_text(fields.at(field)) : std::string("missing"),
        expected));
  };
  const auto require = [&](const char* field, const Fields& value) {
    if (!fields.is_object() || !fields.contains(field) || fields.at(field) != value)
      fail(field, json_text(value));
  };
  require("quant_type", "nf4");
  require("blocksize", kNf4Block);
  require("shape", form_.sizes);
  if (options_.double_quant) {
    require("nested_blocksize", kNf4NestedBlock);
    if (!fields.contains("nested_offset") || !fields.at("nested_offset").is_number())
      fail("nested_offset", "a number");
    form_.offset = fields.at("nested_offset").get<double>();
  }
  const auto dtype = fields.contains("dtype") && fields.at("dtype").is_string()
                         ? python_dtype(fields.at("dtype").get<std::string>())
                         : std::nullopt;
  if (!dtype || *dtype == at::kDouble) fail("dtype", "float32, bfloat16 or float16");
  form_.dtype = *dtype;
  const bool has_levels = at::equal(levels_.cpu(), nf4_levels()) &&
                          (!options_.double_quant || at::equal(nested_levels_.cpu(), nested_levels()));
  if (!has_levels)
    throw DataError(fmt::format("'{}': quant_map or nested_quant_map are not those of nf4", layer));
  write_text();
}

std::shared_ptr<Nf4StateImpl> nf4_state(const torch::nn::Module& layer) {
  const auto children = layer.named_children();
  const auto* found = children.find("weight");
  return found != nullptr ? std::dynamic_pointer_cast<Nf4StateImpl>(*found) : nullptr;
}

void make_nf4(LinearImpl& layer, const Nf4Options& options) {
  const auto outputs = layer.options.out_features(), inputs = layer.options.in_features();
  const auto dtype = layer.weight.scalar_type();
  if (dtype == at::kDouble) throw UsageError("weights in float64 cannot be quantized: choose another dtype");
  layer.register_module(
      "weight", std::make_shared<Nf4StateImpl>(outputs, inputs, options, dtype, layer.weight.device()));
  layer.weight.requires_grad_(false);
  layer.weight.set_data(
      at::zeros({(outputs * inputs + 1) / 2, 1}, layer.weight.detach().options().dtype(at::kByte)));
}

void set_nf4(LinearImpl& layer, const at::Tensor& values) {
  const auto state = nf4_state(layer);
  const Nf4Weight weight = quantize_nf4(values, state->options().double_quant);
  parallel::set_initial_values(layer.weight, [&](const at::Tensor& packed) { packed.copy_(weight.packed); });
  state->set(weight);
}

at::Tensor nf4_linear(const at::Tensor& input, const LinearImpl& layer, const Nf4StateImpl& state) {
  const auto dtype = nf4_product_dtype(input, state.options());
  std::vector<at::Tensor> biases;
  if (layer.bias.defined()) biases.push_back(layer.bias.to(dtype));
  const at::Tensor product =
      Nf4Product::apply(input.to(dtype), at::TensorList(biases), state.weight_of(layer.weight));
  return product.to(input.scalar_type());
}

std::vector<NamedNf4Layer> nf4_layers(torch::nn::Module& model) {
  std::vector<NamedNf4Layer> layers;
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<LinearImpl>(entry.value());
    if (layer && nf4_state(*layer)) layers.push_back({entry.key(), layer});
  }
  return layers;
}

WeightsQuantization::WeightsQuantization(std::optional<Nf4Options> options)
    : before_(std::exchange(weights_quantization, options)) {}

WeightsQuantization::~WeightsQuantization() { weights_quantization = before_; }

void WeightsQuantization::apply(torch::nn::Module& block) {
  if (!weights_quantization) return;
  for (const auto& part : block.modules()) {
    if (std::dynamic_pointer_cast<Conv1DImpl>(part))
      throw UsageError("quantization: layers of GPT-2 (Conv1D) cannot be quantized; other decoders can");
    if (const auto layer = std::dynamic_pointer_cast<LinearImpl>(part))
      make_nf4(*layer, *weights_quantization);
  }
}

}  // namespace lockstep::models

#include "kernels/linear.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/column_sums.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/kept_sums.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "kernels/weight_copies.hpp"

// Under autocast a linear layer of float32 weights is, with its backward, a product and its casts: of the
// weight, of the bias and of the input; of the two weights' gradients back to float32; and of the input's
// gradient. Here the weights come from copies that are made once a step, and the products write float32
// themselves where that is wanted. Its bias's gradient, a sum over all tokens, is as large a read as a cast;
// after GELU it is summed while GELU's own backward has the numbers at hand.

namespace lockstep::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The weight or bias in `dtype`, without a graph.
at::Tensor narrow_copy(const at::Tensor& parameter, at::ScalarType dtype) {
  if (parameter.scalar_type() == dtype) return parameter.detach();
  return parameter.scalar_type() == at::kFloat ? low_precision_copy(parameter, dtype)
                                               : parameter.detach().to(dtype);
}

at::Tensor concatenate(std::vector<at::Tensor> parts, std::int64_t dimension) {
  return parts.size() == 1 ? parts.front() : at::cat(parts, dimension);
}

/// The same of several, one after another.
at::Tensor narrow_copies(const Tensors& parameters, std::int64_t dimension, at::ScalarType dtype) {
  const bool are_wide = std::all_of(parameters.begin(), parameters.end(), [](const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kFloat;
  });
  if (parameters.size() > 1 && dimension == 0 && are_wide && dtype != at::kFloat)
    return low_precision_copy(parameters, dtype);
  Tensors copies;
  for (const auto& parameter : parameters) copies.push_back(narrow_copy(parameter, dtype));
  return concatenate(std::move(copies), dimension);
}

/// A product in `dtype`: in float32 without a cast of its own on a GPU.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  if (dtype == a.scalar_type()) return at::mm(a, b);
  RECORD_FUNCTION("lockstep::mm_in_another_dtype", c10::ArrayRef<const c10::IValue>{});
  if (a.is_cuda() && dtype == at::kFloat) return at::mm(a, b, at::kFloat);
  return at::mm(a, b).to(dtype);
}

const char* gelu_text(Activation activation) { return activation == Activation::gelu_tanh ? "tanh" : "none"; }

const CudaKernel* gelu_kernel(const char* name, const at::Tensor& values, Activation activation) {
  thread_local Remembered<const CudaKernel*, std::string_view, int, at::ScalarType, Activation> known;
  return known.get({name, values.device().index(), values.scalar_type(), activation}, [&] {
    const std::string instance = name + ("<" + cuda_type(values.scalar_type())) +
                                 (activation == Activation::gelu_tanh ? ", true>" : ", false>");
    return find_kernel("column_sums", instance, values.device());
  });
}

constexpr int kGeluThreads = 256;
/// As column_sums().
constexpr std::int64_t kGeluColumns = 256;

bool takes_gelu(const at::Tensor& values, Activation activation) {
  return takes_columns(values) && gelu_kernel("gelu_forward", values, activation) != nullptr &&
         gelu_kernel("gelu_backward", values, activation) != nullptr;
}

at::Tensor gelu(const at::Tensor& values, Activation activation) {
  if (!takes_gelu(values, activation)) return at::gelu(values, gelu_text(activation));
  at::Tensor results = at::empty_like(values);
  const std::int64_t count = values.numel(), of_block = kGeluThreads * (16 / values.element_size());
  gelu_kernel("gelu_forward", values, activation)
      ->launch({.blocks = (count + of_block - 1) / of_block, .threads = kGeluThreads},
               values.const_data_ptr(), results.mutable_data_ptr(), count);
  return results;
}

/// The gradient by the values of gelu(), and its column sums if they are wanted.
struct GeluGradients {
  at::Tensor values, sums;
};

GeluGradients gelu_backward(const at::Tensor& gradients, const at::Tensor& values, Activation activation,
                            bool with_sums) {
  GeluGradients result;
  if (!takes_gelu(values, activation) || !takes_columns(gradients)) {
    result.values = at::gelu_backward(gradients, values, gelu_text(activation));
    if (with_sums) result.sums = column_sums(result.values);
    return result;
  }
  const auto rows = values.size(0), width = values.size(1);
  const auto tiles = (width + kGeluColumns - 1) / kGeluColumns, parts = count_column_parts(values, tiles);
  result.values = at::empty_like(values);
  const PartialSums sums = with_sums ? PartialSums(values.device(), parts, width, tiles) : PartialSums();
  gelu_kernel("gelu_backward", values, activation)
      ->launch({.blocks = tiles, .threads = kGeluThreads, .blocks_y = static_cast<int>(parts)},
               gradients.const_data_ptr(), values.const_data_ptr(), result.values.mutable_data_ptr(),
               sums.argument(), rows, static_cast<int>(width));
  if (with_sums) result.sums = sums.totals();
  return result;
}

/// What its context keeps beside tensors.
struct Layer {
  at::ScalarType dtype;
  LinearOptions options;
  std::size_t weights = 1;
  bool has_bias = false;
};

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList parameters,
                            const Layer& layer) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto outputs_at = layer.options.is_turned ? 1 : 0;
    const auto first_bias = parameters.begin() + static_cast<std::ptrdiff_t>(layer.weights);
    const Tensors weights(parameters.begin(), first_bias), biases(first_bias, parameters.end());
    std::vector<std::int64_t> outputs;
    for (const auto& one : weights) outputs.push_back(one.size(outputs_at));
    const at::Tensor weight = narrow_copies(weights, outputs_at, layer.dtype);
    const at::Tensor flat = input.detach().to(layer.dtype).reshape({-1, input.size(-1)});
    const at::Tensor turned = layer.options.is_turned ? weight : weight.t();
    const at::Tensor values = layer.has_bias ? at::addmm(narrow_copies(biases, 0, layer.dtype), flat, turned)
                                             : at::mm(flat, turned);
    const bool has_activation = layer.options.activation != Activation::none;
    const at::Tensor result = has_activation ? gelu(values, layer.options.activation) : values;
    // No more than backward needs: of a frozen layer no input lives until then.
    bool trains_weights = false;
    for (std::size_t i = 0; i < layer.weights; ++i)
      trains_weights = trains_weights || parameters[i].requires_grad();
    context->save_for_backward({trains_weights ? flat : at::Tensor(),
                                input.requires_grad() ? weight : at::Tensor(),
                                has_activation ? values : at::Tensor()});
    context->saved_data["outputs"] = outputs;
    context->saved_data["input_dtype"] = static_cast<std::int64_t>(input.scalar_type());
    context->saved_data["input_sizes"] = input.sizes().vec();
    context->saved_data["parameter_dtype"] = static_cast<std::int64_t>(parameters[0].scalar_type());
    context->saved_data["has_bias"] = layer.has_bias;
    bool trains_biases = false;
    for (std::size_t i = layer.weights; i < parameters.size(); ++i)
      trains_biases = trains_biases || parameters[i].requires_grad();
    context->saved_data["sums_gradient"] = trains_biases && !has_activation;
    context->saved_data["is_turned"] = layer.options.is_turned;
    context->saved_data["activation"] = static_cast<std::int64_t>(layer.options.activation);
    auto sizes = input.sizes().vec();
    sizes.back() = result.size(-1);
    // No view, which could not be changed in place.
    return at::_unsafe_view(result, sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("a linear layer");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &values = saved[2];
    auto& data = context->saved_data;
    const auto outputs = data["outputs"].toIntVector();
    const auto count = outputs.size();
    const bool has_bias = data["has_bias"].toBool(), is_turned = data["is_turned"].toBool();
    const auto activation = static_cast<Activation>(data["activation"].toInt());
    const auto dtype = static_cast<at::ScalarType>(data["parameter_dtype"].toInt());
    const auto is_needed = [&](std::size_t first, std::size_t number) {
      for (std::size_t i = first; i < first + number; ++i) {
        if (context->needs_input_grad(i)) return true;
      }
      return false;
    };
    const bool by_weights = is_needed(1, count), by_biases = has_bias && is_needed(1 + count, count);

    variable_list results(1 + count * (has_bias ? 2 : 1) + 1);
    at::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    at::Tensor sums;
    if (activation != Activation::none) {
      auto both = gelu_backward(gradient.contiguous(), values, activation, by_biases);
      gradient = std::move(both.values);
      sums = std::move(both.sums);
    } else if (by_biases) {
      sums = take_column_sums(gradients[0]);
      if (!sums.defined()) sums = column_sums(gradient);
    }
    if (context->needs_input_grad(0)) {
      const auto input_dtype = static_cast<at::ScalarType>(data["input_dtype"].toInt());
      results[0] = product(gradient, is_turned ? weight.t() : weight, input_dtype)
                       .view(data["input_sizes"].toIntVector());
    }
    if (by_weights) {
      const at::Tensor all =
          is_turned ? product(input.t(), gradient, dtype) : product(gradient.t(), input, dtype);
      distribute(all, outputs, is_turned ? 1 : 0, results, 1);
    }
    if (by_biases) distribute(sums.to(dtype), outputs, 0, results, 1 + count);
    return results;
  }

 private:
  static void distribute(const at::Tensor& all, const std::vector<std::int64_t>& sizes,
                         std::int64_t dimension, variable_list& results, std::size_t at) {
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      results[at++] = sizes.size() == 1 ? all : all.narrow(dimension, begin, size);
      begin += size;
    }
  }
};

/// By LibTorch's operations, as autocast does it.
at::Tensor composed(const at::Tensor& input, const Tensors& weights, const Tensors& biases,
                    const LinearOptions& options) {
  Tensors parts;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor weight = options.is_turned ? weights[i].t() : weights[i];
    parts.push_back(biases.empty() ? at::linear(input, weight) : at::linear(input, weight, biases[i]));
  }
  const at::Tensor values = concatenate(std::move(parts), -1);
  return options.activation == Activation::none ? values : at::gelu(values, gelu_text(options.activation));
}

at::Tensor fused(const at::Tensor& input, const Tensors& weights, const Tensors& biases, at::ScalarType dtype,
                 const LinearOptions& options) {
  Tensors parameters = weights;
  parameters.insert(parameters.end(), biases.begin(), biases.end());
  return FusedLinear::apply(
      input, at::TensorList(parameters),
      Layer{.dtype = dtype, .options = options, .weights = weights.size(), .has_bias = !biases.empty()});
}

/// As a kernel that adds the sums of its blocks.
void check_column_totals(const at::Device& device) {
  const at::Tensor partial = waves({70, 40}, at::kFloat, device, 1).detach();
  expect_near("the total of sums", column_totals(partial), partial.to(at::kDouble).sum(0), 1e-5);
}

/// Of more columns than a tile has, and more rows than a part.
void check_linear(at::ScalarType dtype, const LinearOptions& options, const at::Device& device) {
  constexpr std::int64_t kTokens = 72, kInputs = 64, kOutputs = 264;
  if (takes_columns(waves({kTokens, kOutputs}, dtype, device, 1).detach())) check_column_totals(device);
  const at::Tensor weight = options.is_turned ? waves({kInputs, kOutputs}, at::kFloat, device, 2)
                                              : waves({kOutputs, kInputs}, at::kFloat, device, 2);
  // Rounded before, so that the comparison is of what is computed.
  const auto rounded = [&](const at::Tensor& tensor) {
    return tensor.detach().to(dtype).to(at::kFloat).requires_grad_();
  };
  compare({.inputs = {rounded(waves({kTokens, kInputs}, at::kFloat, device, 1)), rounded(weight),
                      rounded(waves({kOutputs}, at::kFloat, device, 3))},
           .fused =
               [&](const Tensors& given) {
                 return Tensors{fused(given[0], {given[1]}, {given[2]}, dtype, options)};
               },
           .reference =
               [&](const Tensors& given) {
                 return Tensors{composed(given[0], {given[1]}, {given[2]}, options)};
               }});
}

/// "linear layers in bf16, turned, with GELU".
std::string name_of(at::ScalarType dtype, const LinearOptions& options) {
  return "linear layers in " + cuda_type(dtype) + (options.is_turned ? ", turned" : "") +
         (options.activation == Activation::none   ? ""
          : options.activation == Activation::gelu ? ", with GELU"
                                                   : ", with GELU by tanh");
}

}  // namespace

bool sums_its_gradient(const at::Tensor& output) {
  auto* const node = dynamic_cast<torch::autograd::CppNode<FusedLinear>*>(output.grad_fn().get());
  if (node == nullptr) return false;
  const auto& data = node->ctx_.saved_data;
  return data.at("sums_gradient").toBool();
}

at::Tensor linear(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                  const std::vector<at::Tensor>& biases, at::ScalarType dtype, const LinearOptions& options) {
  const at::Device device = input.device();
  thread_local Remembered<bool, int, at::ScalarType, bool, Activation> known;
  const bool is_usable = known.get({device.index(), dtype, options.is_turned, options.activation}, [&] {
    return is_proven(name_of(dtype, options), device, [&] { check_linear(dtype, options, device); });
  });
  return is_usable ? fused(input, weights, biases, dtype, options)
                   : composed(input, weights, biases, options);
}

}  // namespace lockstep::kernels

#include "lockstep/models/token_losses.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/loss_factor.hpp"
#include "kernels/weight_copies.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/train/mixed_precision.hpp"

// The logits of a batch are its largest tensor where the vocabulary is large: of 16 texts of 2048 tokens and
// 151,936 words, 20 GB in float32, and cross entropy makes two more of that size for its gradient. In parts
// of P tokens, only P * vocabulary of each exist at a time.
//
// The loss is a sum over the tokens, so the gradient of a part's logits is known up to one factor, the
// gradient of the sum, as soon as they are. It is computed with them, and multiplied by the head's two
// matrices at once:
//
//     logits = states W^T     d = gradient of the part's loss by its logits     dStates = d W     dW += d^T
//     states
//
// What is left for backward is the multiplication of dStates and dW, which have the sizes of states and W, by
// that factor. Computing the logits in backward again, as activation checkpointing does, would be a fourth
// product beside the three. It is done where the factor cannot wait: float16 needs the scaling of the loss
// before gradients are rounded to it.
//
// Where fused kernels are used (see FusedKernels), one kernel makes a part's loss of its logits and replaces
// them by their gradients: the logits are in memory once, in 16 bits, are read once and written once.

namespace lockstep::models {
namespace {

constexpr std::int64_t kLogitsOfCpu = std::int64_t{1} << 25;
/// Larger, because the product that adds to the weight's gradient reads and writes all of it for each part.
constexpr std::int64_t kLogitsOfGpu = std::int64_t{1} << 27;
/// Of fused kernels, which need a fifth of the memory.
constexpr std::int64_t kLogitsOfFused = std::int64_t{1} << 28;
constexpr std::int64_t kAlignedWords = 64;
/// Parts of so many tokens, or a multiple, fill the blocks of a GPU's products.
constexpr std::int64_t kAlignedTokens = 128;

std::int64_t logits_at_a_time(const TokenLossOptions& options, const at::Device& device, bool is_fused) {
  if (options.logits_at_a_time > 0) return options.logits_at_a_time;
  if (is_fused) return kLogitsOfFused;
  return device.is_cpu() ? kLogitsOfCpu : kLogitsOfGpu;
}

/// The dtype of a product of tensors of this dtype: that of autocast, if it is on.
at::ScalarType product_dtype(const at::Tensor& states) {
  const auto device = states.device().type();
  const bool casts = at::autocast::is_autocast_enabled(device) && states.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(device) : states.scalar_type();
}

/// With rows of 0 up to a multiple of kAlignedWords, where that is faster.
at::Tensor align_words(const at::Tensor& weight) {
  const std::int64_t beyond = weight.size(0) % kAlignedWords;
  const bool is_faster = weight.is_cuda() || kernels::fused_dtype(weight);
  if (beyond == 0 || !is_faster || !c10::isReducedFloatingType(weight.scalar_type())) return weight;
  return at::constant_pad_nd(weight, {0, 0, 0, kAlignedWords - beyond});
}

/// The head's weight as its products with `states` take it; without a graph.
at::Tensor weight_for_products(const TokenHead& head, const at::Tensor& states) {
  const auto dtype = product_dtype(states);
  if (head.weight.scalar_type() != at::kFloat || !c10::isReducedFloatingType(dtype))
    return align_words(head.weight.detach().to(dtype));
  const bool is_faster = head.weight.is_cuda() || kernels::fused_dtype(states);
  return kernels::low_precision_copy(head.weight, dtype, is_faster ? kAlignedWords : 1);
}

/// The head's products with states [..., width], with a graph: of more words where that is faster.
at::Tensor products_of(const TokenHead& head, const at::Tensor& states) {
  const auto dtype = product_dtype(states);
  return at::linear(states,
                    align_words(head.weight.is_cuda() || kernels::fused_dtype(states) ? head.weight.to(dtype)
                                                                                      : head.weight));
}

/// Products become logits; see TokenHead.
at::Tensor finish_logits(const TokenHead& head, const at::Tensor& products) {
  at::Tensor logits = products;
  if (head.divisor != 1) logits = logits / head.divisor;
  if (head.softcap > 0) logits = at::tanh(logits / head.softcap) * head.softcap;
  return head.bias.defined() ? logits + head.bias : logits;
}

/// In float32, whatever the dtype of the logits.
at::Tensor sum_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  const Autocast exact(logits.device(), MixedPrecision::no);
  const at::Tensor wide = c10::isReducedFloatingType(logits.scalar_type()) ? logits.to(at::kFloat) : logits;
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  return torch::nn::functional::cross_entropy(wide, labels, options);
}

void check_shapes(const at::Tensor& states, const at::Tensor& labels) {
  if (!labels.defined()) throw UsageError("token_losses: there are no labels, and no logits are wanted");
  if (states.dim() == 3 && labels.dim() == 2 && labels.sizes() == states.sizes().slice(0, 2)) return;
  throw UsageError(
      fmt::format("labels are integers [rows, tokens], one for each of the states [rows, tokens, width]; got "
                  "labels {} and "
                  "states {}",
                  c10::str(labels.sizes()), c10::str(states.sizes())));
}

/// A loss whose gradients by `states` and `weight` are known.
class LossWithGradients : public torch::autograd::Function<LossWithGradients> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& loss,
                            const at::Tensor& /*states*/, const at::Tensor& /*weight*/,
                            const kernels::LossGradients& gradients) {
    // No saved variables: the context would keep them while the gradient is stored, which would copy it.
    context->saved_data["states"] = gradients.states;
    context->saved_data["weight"] = gradients.weight;
    // No view, which could not be changed in place.
    return at::_unsafe_view(loss, loss.sizes());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "token_losses() in parts, and by a fused kernel, has no second derivatives (create_graph)");
    }
    const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
    const auto take = [&](const char* name) {
      const auto found = context->saved_data.find(name);
      if (found == context->saved_data.end())
        throw UsageError("a second backward through token_losses() needs retain_graph in the first");
      at::Tensor gradient = found->second.toTensor();
      if (!keeps) context->saved_data.erase(found);
      return gradient;
    };
    const kernels::LossGradients known{.states = take("states"), .weight = take("weight")};
    const at::Tensor& factor = gradients[0];
    if (!keeps && kernels::takes_loss_factor(known, factor)) {
      kernels::multiply_by_loss_factor(known, factor);
      return {{}, known.states, known.weight, {}};
    }
    const auto multiplied = [&](const at::Tensor& gradient) {
      if (!gradient.defined() || (factor.is_cpu() && factor.item<double>() == 1)) return gradient;
      const at::Tensor rounded = factor.to(gradient.scalar_type());
      return keeps ? gradient * rounded : gradient.mul_(rounded);
    };
    return {{}, multiplied(known.states), multiplied(known.weight), {}};
  }
};

/// Adds `gradients`^T * `states` to `sum`, which begins as that.
void add_weight_gradient(at::Tensor& sum, const at::Tensor& gradients, const at::Tensor& states) {
  const bool is_wide = !c10::isReducedFloatingType(gradients.scalar_type());
  if (gradients.is_cuda() && !is_wide) {
    // In float32 from the product itself.
    if (!sum.defined()) {
      sum = at::mm(gradients.t(), states, at::kFloat);
    } else {
      at::addmm_out(sum, sum, gradients.t(), states, at::kFloat);
    }
    return;
  }
  if (!sum.defined()) {
    sum = at::mm(gradients.t(), states);
    if (!is_wide) sum = sum.to(at::kFloat);
  } else if (is_wide) {
    sum.addmm_(gradients.t(), states);
  } else {
    sum.add_(at::mm(gradients.t(), states));
  }
}

/// Where a part begins, and how many tokens it has.
struct Part {
  std::int64_t begin, count;
};

std::vector<Part> divide(std::int64_t tokens, std::int64_t at_a_time) {
  std::vector<Part> parts;
  for (std::int64_t begin = 0; begin < tokens; begin += at_a_time)
    parts.push_back({begin, std::min(at_a_time, tokens - begin)});
  return parts;
}

/// As many parts as there must be, of nearly one size.
std::vector<Part> divide_evenly(std::int64_t tokens, std::int64_t at_a_time) {
  const std::int64_t parts = (tokens + at_a_time - 1) / std::max<std::int64_t>(1, at_a_time);
  if (parts < 2) return divide(tokens, at_a_time);
  const std::int64_t even = (tokens + parts - 1) / parts;
  return divide(tokens, std::min(at_a_time, (even + kAlignedTokens - 1) / kAlignedTokens * kAlignedTokens));
}

at::Tensor most_probable(const at::Tensor& logits) { return logits.detach().argmax(-1); }

/// Whether one kernel can do all that follows the products. What it cannot: see takes_cross_entropy().
bool is_plain(const TokenHead& head) {
  return !head.bias.defined() && head.divisor == 1 && head.softcap == 0;
}

kernels::CrossEntropyTask fused_task(const TokenHead& head, const at::Tensor& labels,
                                     const TokenLossOptions& options) {
  return {.labels = labels,
          .no_label = kNoLabel,
          .words = head.weight.size(0),
          .label_smoothing = options.label_smoothing,
          .predictions = options.predictions};
}

/// A part's loss, and the gradients by its products if they are wanted. `label_count`: undefined if it was
/// not counted.
struct PartLoss {
  at::Tensor loss, predictions, gradients, label_count = {};
};

/// Without a graph. `products`: of the head, of nothing else.
PartLoss loss_of_part(const TokenHead& head, at::Tensor products, const at::Tensor& labels,
                      const TokenLossOptions& options, bool with_gradients) {
  if (const auto task = fused_task(head, labels, options);
      is_plain(head) && kernels::takes_cross_entropy(products, task)) {
    const auto result = kernels::cross_entropy_in_place(products, task, with_gradients);
    return {.loss = result.loss_sum,
            .predictions = result.predictions,
            .gradients = products,
            .label_count = result.label_count};
  }
  PartLoss part;
  const at::AutoGradMode enabled(with_gradients);
  products.set_requires_grad(with_gradients);
  const at::Tensor logits = finish_logits(head, products.narrow(1, 0, head.weight.size(0)));
  const at::Tensor loss = sum_cross_entropy(logits, labels, options.label_smoothing);
  if (options.predictions) part.predictions = most_probable(logits);
  part.loss = loss.detach();
  if (with_gradients) part.gradients = torch::autograd::grad({loss}, {products})[0];
  return part;
}

/// The losses of states [tokens, width], with their gradients. See the note above.
TokenLosses losses_with_gradients(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                                  const std::vector<Part>& parts, const TokenLossOptions& options) {
  const bool records = at::GradMode::is_enabled();
  const bool by_states = records && states.requires_grad(),
             by_weight = records && head.weight.requires_grad();
  const auto dtype = product_dtype(states);
  const std::int64_t words = head.weight.size(0);
  at::Tensor sum, label_count, states_gradient, weight_gradient;
  std::vector<at::Tensor> predictions;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor weight = weight_for_products(head, states);
    const Autocast exact(states.device(), MixedPrecision::no);
    const at::Tensor inputs = states.detach().to(dtype);
    if (by_states) states_gradient = at::empty_like(inputs);
    for (const auto& [begin, count] : parts) {
      const at::Tensor some = inputs.narrow(0, begin, count);
      PartLoss part = loss_of_part(head, at::mm(some, weight.t()), labels.narrow(0, begin, count), options,
                                   by_states || by_weight);
      if (options.predictions) predictions.push_back(part.predictions);
      sum = sum.defined() ? sum + part.loss : part.loss;
      if (parts.size() == 1) label_count = part.label_count;
      if (by_states) {
        at::Tensor target = states_gradient.narrow(0, begin, count);
        at::mm_out(target, part.gradients, weight);
      }
      if (by_weight) add_weight_gradient(weight_gradient, part.gradients, some);
    }
    if (by_states) states_gradient = states_gradient.to(states.scalar_type());
    if (by_weight) weight_gradient = weight_gradient.narrow(0, 0, words).to(head.weight.scalar_type());
  }
  if (by_states || by_weight)
    sum = LossWithGradients::apply(
        sum, states, head.weight,
        kernels::LossGradients{.states = states_gradient, .weight = weight_gradient});
  return {.loss_sum = sum,
          .loss_weight = label_count,
          .predictions = options.predictions ? at::cat(predictions) : at::Tensor()};
}

/// The loss of states [tokens, width], and the most probable tokens if wanted, with a graph.
std::vector<at::Tensor> recorded_losses(const TokenHead& head, const at::Tensor& states,
                                        const at::Tensor& labels, const TokenLossOptions& options) {
  const at::Tensor products = products_of(head, states);
  if (const auto task = fused_task(head, labels, options);
      is_plain(head) && kernels::takes_cross_entropy(products, task)) {
    const auto result = kernels::cross_entropy_of_temporary(products, task);
    return options.predictions ? std::vector{result.loss_sum, result.predictions}
                               : std::vector{result.loss_sum};
  }
  const at::Tensor logits = finish_logits(head, products.narrow(-1, 0, head.weight.size(0)));
  std::vector<at::Tensor> losses{sum_cross_entropy(logits, labels, options.label_smoothing)};
  if (options.predictions) losses.push_back(most_probable(logits));
  return losses;
}

/// The losses of states [tokens, width], whose logits backward computes again.
TokenLosses losses_to_recompute(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                                const std::vector<Part>& parts, const TokenLossOptions& options) {
  const auto part_losses = [head, options](const at::Tensor& some, const at::Tensor& wanted) {
    return recorded_losses(head, some, wanted, options);
  };
  at::Tensor sum;
  std::vector<at::Tensor> predictions;
  for (const auto& [begin, count] : parts) {
    const auto losses =
        checkpoint(part_losses, states.narrow(0, begin, count), labels.narrow(0, begin, count));
    sum = sum.defined() ? sum + losses[0] : losses[0];
    if (options.predictions) predictions.push_back(losses[1]);
  }
  return {.loss_sum = sum,
          .loss_weight = {},
          .predictions = options.predictions ? at::cat(predictions) : at::Tensor()};
}

/// The losses of single tokens, of states [tokens, width], with a graph.
at::Tensor losses_of_tokens(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                            double smoothing) {
  const at::Tensor logits = finish_logits(head, products_of(head, states).narrow(-1, 0, head.weight.size(0)));
  const Autocast exact(logits.device(), MixedPrecision::no);
  const at::Tensor wide = c10::isReducedFloatingType(logits.scalar_type()) ? logits.to(at::kFloat) : logits;
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone).label_smoothing(smoothing);
  return torch::nn::functional::cross_entropy(wide, labels, options);
}

/// The losses of each row's labels. The tokens that count are those of completions, often few of a row.
TokenLosses losses_of_texts(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                            const TokenLossOptions& options, std::int64_t most) {
  const at::Tensor flat = labels.flatten(), places = flat.ne(kNoLabel).nonzero().squeeze(1);
  const at::Tensor some = states.flatten(0, 1).index_select(0, places), wanted = flat.index_select(0, places);
  const std::int64_t words = head.weight.size(0);
  std::vector<at::Tensor> losses;
  if (wanted.numel() * words <= most) {
    losses.push_back(losses_of_tokens(head, some, wanted, options.label_smoothing));
  } else {
    const auto part_losses = [head, smoothing = options.label_smoothing](const at::Tensor& part,
                                                                         const at::Tensor& part_labels) {
      return losses_of_tokens(head, part, part_labels, smoothing);
    };
    for (const auto& [begin, count] : divide(wanted.numel(), std::max<std::int64_t>(1, most / words)))
      losses.push_back(checkpoint(part_losses, some.narrow(0, begin, count), wanted.narrow(0, begin, count)));
  }
  const at::Tensor all = at::cat(losses);
  const at::Tensor texts =
      at::zeros({flat.numel()}, all.options()).index_copy(0, places, all).view(labels.sizes()).sum(1);
  return {.loss_sum = texts.sum(), .loss_weight = flat.ne(kNoLabel).sum(), .text_losses = texts};
}

TokenLosses losses_of_whole_logits(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                                   const TokenLossOptions& options) {
  const at::Tensor logits = logits_of(head, states);
  TokenLosses losses{
      .loss_sum = sum_cross_entropy(logits.flatten(0, 1), labels.flatten(), options.label_smoothing),
      .loss_weight = {}};
  if (options.predictions) losses.predictions = most_probable(logits);
  if (options.logits) losses.logits = logits;
  return losses;
}

}  // namespace

at::Tensor logits_of(const TokenHead& head, const at::Tensor& states) {
  const at::Tensor products = products_of(head, states);
  const std::int64_t words = head.weight.size(0);
  return finish_logits(head, products.size(-1) == words ? products : products.narrow(-1, 0, words));
}

TokenLosses token_losses(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                         const TokenLossOptions& options) {
  if (!labels.defined() && options.logits)
    return {.loss_sum = {}, .loss_weight = {}, .logits = logits_of(head, states)};
  check_shapes(states, labels);
  const auto dtype = kernels::fused_dtype(states);
  const bool is_fused =
      dtype && is_plain(head) && labels.numel() > 0 && kernels::has_cross_entropy(*dtype, labels);
  const std::int64_t most = logits_at_a_time(options, states.device(), is_fused), words = head.weight.size(0);
  if (options.texts) {
    if (options.predictions || options.logits)
      throw UsageError("token_losses: the losses of texts are computed without predictions and logits");
    return losses_of_texts(head, states, labels, options, most);
  }
  const at::Tensor wanted = labels.flatten();
  const bool is_small = wanted.numel() * words <= most;
  // A checkpoint's function must not run a backward.
  const bool is_inside_checkpoint = at::GradMode::is_enabled() && !parallel::may_checkpoint();
  const bool recomputes = product_dtype(states) == at::kHalf || is_inside_checkpoint ||
                          (head.bias.defined() && head.bias.requires_grad());
  TokenLosses losses;
  if (options.logits || (is_small && !is_fused)) {
    losses = losses_of_whole_logits(head, states, labels, options);
  } else {
    const std::int64_t at_a_time = std::max<std::int64_t>(1, most / words);
    const auto parts =
        is_fused ? divide_evenly(wanted.numel(), at_a_time) : divide(wanted.numel(), at_a_time);
    const at::Tensor flat = states.flatten(0, 1);
    if (is_small && recomputes) {
      const auto whole = recorded_losses(head, flat, wanted, options);
      losses.loss_sum = whole[0];
      if (options.predictions) losses.predictions = whole[1];
    } else {
      losses = (recomputes ? losses_to_recompute : losses_with_gradients)(head, flat, wanted, parts, options);
    }
    if (options.predictions) losses.predictions = losses.predictions.view(labels.sizes());
  }
  if (!losses.loss_weight.defined()) losses.loss_weight = wanted.ne(kNoLabel).sum();
  return losses;
}

at::Tensor next_labels(const at::Tensor& labels) {
  if (labels.dim() != 2 || labels.size(1) == 0)
    throw UsageError(fmt::format("labels are integers [rows, tokens]; got {}", c10::str(labels.sizes())));
  return at::constant_pad_nd(labels.narrow(1, 1, labels.size(1) - 1), {0, 1}, kNoLabel);
}

}  // namespace lockstep::models

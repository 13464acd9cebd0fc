#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models {

/// The last layer of a language model. The logits of `states` are `states` * `weight`^T, divided by
/// `divisor`, then through `softcap` * tanh(x / `softcap`), then with `bias` added. Tensors of the model, no
/// copies.
struct TokenHead {
  /// [vocabulary, width]
  at::Tensor weight;
  /// A constant of a shape that fits the logits; undefined: none.
  at::Tensor bias = {};
  double divisor = 1;
  /// 0: none.
  double softcap = 0;
};

/// Logits [..., vocabulary] of states [..., width]. On a GPU, in 16 bits, products are of a vocabulary
/// rounded up to a multiple of 64: an odd one keeps the GPU from its fast matrix instructions. *Local*.
at::Tensor logits_of(const TokenHead& head, const at::Tensor& states);

/// The label that does not count.
inline constexpr std::int64_t kNoLabel = -100;

struct TokenLossOptions {
  /// The share of each label that is spread over the vocabulary.
  double label_smoothing = 0;
  /// The most logits that exist at a time, except that one token has as many as the vocabulary. 0: 2^25 on a
  /// CPU, 2^27 on a GPU, 2^28 there with fused kernels.
  std::int64_t logits_at_a_time = 0;
  /// Whether the most probable tokens are wanted too.
  bool predictions = false;
  /// Whether the whole logits are wanted too: then logits_at_a_time does not count.
  bool logits = false;
  /// Whether the loss of each text is wanted, so that each can have a gradient of its own. Not together with
  /// predictions and logits.
  bool texts = false;
};

struct TokenLosses {
  /// The sum of the cross entropies of the labels that count. A scalar, float32 (float64 of a model in it).
  at::Tensor loss_sum;
  /// How many labels count. A scalar, int64.
  at::Tensor loss_weight;
  /// The most probable token after each one, int64 [rows, tokens]; undefined if not wanted.
  at::Tensor predictions = {};
  /// [rows, tokens, vocabulary]; undefined if not wanted.
  at::Tensor logits = {};
  /// The losses of each row's labels added up, [rows], in the dtype of loss_sum; undefined if not wanted. Of
  /// one text, minus its log-probability.
  at::Tensor text_losses = {};
};
/// Used by DistributedDataParallel.
void visit_tensors_of(TokenLosses& losses, const auto& visit) {
  for (at::Tensor* tensor :
       {&losses.loss_sum, &losses.loss_weight, &losses.predictions, &losses.logits, &losses.text_losses}) {
    if (tensor->defined()) visit(*tensor);
  }
}

/// The losses of states [rows, tokens, width], where `labels`, integers [rows, tokens], are those of the
/// tokens that the states predict, or kNoLabel: see next_labels().
///
/// Up to `logits_at_a_time` logits are computed as a whole: the bits of cross_entropy(logits_of(head,
/// states)) and of its gradients. More are computed in parts of so many, from the first to the last token,
/// and no whole logits ever exist. Their losses are then added in this order, as are the parts of the
/// weight's gradient (in float32 for weights in 16 bits), so that both differ from those of whole logits by
/// rounding. They have the same bits in every run, with DDP as with FSDP.
///
/// The gradients are computed in forward, with the loss, so that logits are computed once; backward
/// multiplies them by the gradient of `loss_sum`. In float16, whose small gradients need the loss scaling of
/// that gradient, for a trained bias, and inside a checkpoint(), backward computes each part's logits again.
/// With fused kernels (see FusedKernels) one part is computed as several are, and each part's logits are in
/// 16 bits: the loss and its gradient are computed of them in float32, and the gradient rounded to 16 bits as
/// that of a cast is. No second derivatives of parts. If the loss of each text is wanted, whose gradients are
/// not known in forward, backward computes the logits of each part again; only tokens with a label that
/// counts have any. Undefined labels: only the logits, if those are wanted.
/// *Local*. Throws UsageError if the shapes do not fit, and if nothing is wanted.
TokenLosses token_losses(const TokenHead& head, const at::Tensor& states, const at::Tensor& labels,
                         const TokenLossOptions& options = {});

/// The labels of the tokens after each one: `labels` [rows, tokens] one to the left, with kNoLabel at the
/// end. So the logits of a causal model need not be cut to fit them, which would copy them. *Local*.
at::Tensor next_labels(const at::Tensor& labels);

}  // namespace lockstep::models

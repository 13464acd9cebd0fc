// How many kernels a training step starts: on a GPU each costs the host time, whatever the size of the model.

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

/// Operations that start no kernel; dropout, because these models have none.
const std::set<std::string> kViews = {"view",
                                      "_unsafe_view",
                                      "t",
                                      "transpose",
                                      "slice",
                                      "split",
                                      "chunk",
                                      "expand",
                                      "detach",
                                      "detach_",
                                      "alias",
                                      "unsqueeze",
                                      "squeeze",
                                      "as_strided",
                                      "select",
                                      "permute",
                                      "_reshape_alias",
                                      "narrow",
                                      "unbind",
                                      "lift_fresh",
                                      "split_with_sizes",
                                      "reshape",
                                      "is_same_size",
                                      "_local_scalar_dense",
                                      "empty",
                                      "empty_like",
                                      "new_empty",
                                      "empty_strided",
                                      "new_empty_strided",
                                      "_fused_sdp_choice",
                                      "is_pinned",
                                      "dropout",
                                      "set_",
                                      "resize_",
                                      "expand_as",
                                      "view_as",
                                      "flatten",
                                      "item",
                                      "is_nonzero",
                                      "result_type",
                                      "can_cast",
                                      "unflatten",
                                      "_has_compatible_shallow_copy_type",
                                      "requires_grad_",
                                      "resolve_conj",
                                      "resolve_neg",
                                      "numpy_T",
                                      "contiguous",
                                      "to"};

/// Counts the innermost operations of this thread.
class KernelCount {
 public:
  template <class Step>
  static std::map<std::string, std::int64_t> of(const Step& step) {
    KernelCount count;
    current = &count;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
    step();
    at::removeCallback(handle);
    current = nullptr;
    return count.kernels_;
  }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& /*operation*/) {
    current->has_kernels_.push_back(false);
    return nullptr;
  }
  static void end(const at::RecordFunction& operation, at::ObserverContext* /*context*/) {
    bool starts = current->has_kernels_.back();
    current->has_kernels_.pop_back();
    const std::string name = operation.name();
    const bool is_operation = name.starts_with("aten::");
    const std::string bare = is_operation ? name.substr(6) : name;
    if (!starts && is_operation && !kViews.contains(bare)) {
      ++current->kernels_[bare];
      starts = true;
    }
    if (starts && !current->has_kernels_.empty()) current->has_kernels_.back() = true;
  }

  static thread_local KernelCount* current;
  std::map<std::string, std::int64_t> kernels_;
  /// Of the operations that are running: whether one inside has started a kernel.
  std::vector<bool> has_kernels_;
};
thread_local KernelCount* KernelCount::current = nullptr;

void expect_kernels(const std::map<std::string, std::int64_t>& kernels, std::int64_t most) {
  std::int64_t all = 0;
  std::string list;
  for (const auto& [name, count] : kernels) {
    all += count;
    list += name + ' ' + std::to_string(count) + '\n';
  }
  EXPECT_LE(all, most) << list;
  EXPECT_GE(all, most - 20) << "fewer than allowed: lower the budget\n" << list;
}

/// A step of bf16 autocast with AdamW, as a Trainer does it.
template <class Model, class Loss>
std::map<std::string, std::int64_t> kernels_of_step(Model model, const Loss& loss_of) {
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  const auto step = [&] {
    const at::Tensor loss = in_precision(at::kCPU, MixedPrecision::bf16, [&] { return loss_of(model); });
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  step();
  return KernelCount::of(step);
}

TEST(KernelBudget, OfAStepOfGpt2) {
  const Gpt2LMHeadModel model(Gpt2Config{.vocab_size = 101,
                                         .n_positions = 16,
                                         .n_embd = 24,
                                         .n_layer = 12,
                                         .n_head = 2,
                                         .resid_pdrop = 0,
                                         .embd_pdrop = 0,
                                         .attn_pdrop = 0});
  const at::Tensor tokens = ids(2, 16, 101);
  expect_kernels(
      kernels_of_step(model, [&](auto& gpt2) { return gpt2->token_losses(tokens, {}, tokens).loss_sum; }),
      667);
}

TEST(KernelBudget, OfAStepOfBert) {
  const BertForSequenceClassification model(BertConfig{.vocab_size = 101,
                                                       .hidden_size = 24,
                                                       .num_hidden_layers = 12,
                                                       .num_attention_heads = 2,
                                                       .intermediate_size = 48,
                                                       .hidden_dropout_prob = 0,
                                                       .attention_probs_dropout_prob = 0,
                                                       .max_position_embeddings = 16});
  const at::Tensor tokens = ids(2, 16, 101);
  expect_kernels(kernels_of_step(model, [&](auto& bert) { return bert(tokens).square().sum(); }), 1005);
}

}  // namespace
}  // namespace lockstep::models

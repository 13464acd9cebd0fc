#include "lockstep/models/dpo.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/token_loss_model.hpp"

namespace lockstep::models {
namespace {

constexpr const char* kChosenIds = "chosen_ids";
constexpr const char* kChosenLabels = "chosen_labels";
constexpr const char* kRejectedIds = "rejected_ids";
constexpr const char* kRejectedLabels = "rejected_labels";
/// Batches of each rank between two exchanges of a precomputed reference.
constexpr std::int64_t kBatchesOfRound = 16;

/// The losses of texts, see TokenLosses, by the model and, unless they are precomputed, by the reference.
struct PreferenceLosses {
  at::Tensor reference, model;
};
/// Used by DistributedDataParallel.
void visit_tensors_of(PreferenceLosses& losses, const auto& visit) {
  visit(losses.model);
  if (losses.reference.defined()) visit(losses.reference);
}

/// What DistributedDataParallel and fully_shard() wrap: one forward of both models. In a sharded one, what is
/// gathered for the root serves both.
class PreferenceModelImpl : public TokenLossModelImpl {
 public:
  PreferenceModelImpl(const CausalLM& model, const CausalLM& reference, const DpoOptions& options)
      : TokenLossModelImpl(model),
        second_(reference ? reference.ptr() : nullptr),
        has_reference_(!options.precomputed_reference),
        disable_dropout_(options.disable_dropout) {
    train(is_training());
  }

  PreferenceLosses forward(const LabelledTexts& texts) {
    return {.reference = has_reference_ ? reference_losses(texts) : at::Tensor(),
            .model = TokenLossModelImpl::forward(texts).text_losses};
  }

  void train(bool on) override { TokenLossModelImpl::train(on && !disable_dropout_); }

 private:
  at::Tensor reference_losses(const LabelledTexts& texts) {
    const at::NoGradGuard no_grad;
    if (second_ != nullptr) {
      if (second_->parameters().front().device() != texts.input_ids.device())
        second_->to(texts.input_ids.device());
      return second_->token_losses(texts.labels, texts.options, texts.input_ids).text_losses;
    }
    const AdapterOff off(*this);
    const bool trains = is_training();
    if (trains) TokenLossModelImpl::train(false);
    const at::Tensor losses = TokenLossModelImpl::forward(texts).text_losses;
    if (trains) TokenLossModelImpl::train(true);
    return losses;
  }

  /// Not among the parts of this module: it is neither trained nor saved.
  std::shared_ptr<CausalLMImpl> second_;
  bool has_reference_;
  bool disable_dropout_;
};
TORCH_MODULE(PreferenceModel);

/// Padded at the end to this many tokens.
at::Tensor pad_to(const at::Tensor& rows, std::int64_t length, std::int64_t padding) {
  return at::constant_pad_nd(rows, {0, length - rows.size(1)}, padding);
}

at::Tensor both(const Batch& batch, const char* chosen, const char* rejected, std::int64_t padding) {
  const auto length = std::max(batch[chosen].size(1), batch[rejected].size(1));
  return at::cat({pad_to(batch[chosen], length, padding), pad_to(batch[rejected], length, padding)});
}

/// Chosen and rejected texts as the rows of one batch.
LabelledTexts texts_of(const Batch& batch, std::int64_t logits_at_a_time) {
  return {.input_ids = both(batch, kChosenIds, kRejectedIds, 0),
          .labels = both(batch, kChosenLabels, kRejectedLabels, kNoLabel),
          .options = {.logits_at_a_time = logits_at_a_time, .texts = true}};
}

OfPairs halves(const at::Tensor& both) {
  const auto parts = both.chunk(2);
  return {parts[0], parts[1]};
}

/// The outputs of a PreferenceModel, whether it is wrapped or not.
class PreferenceForward {
 public:
  explicit PreferenceForward(const DpoOptions& options) : options_(options) {}

  Batch operator()(auto& wrapped, const Batch& batch) const {
    const LabelledTexts texts = texts_of(batch, options_.logits_at_a_time);
    const PreferenceLosses losses = wrapped(texts);
    const OfPairs model = halves(-losses.model);
    const OfPairs reference = options_.precomputed_reference
                                  ? OfPairs{batch[kReferenceChosen], batch[kReferenceRejected]}
                                  : halves(-losses.reference);
    const at::Tensor each = dpo_losses(model, reference, halves(texts.labels.ne(kNoLabel).sum(1)), options_);
    const auto reward = [&](const at::Tensor& own, const at::Tensor& other) {
      return (own - other).detach() * options_.beta;
    };
    return {{"loss_sum", each.sum()},
            {"loss_weight", at::full({}, each.numel(), each.options().dtype(at::kLong))},
            {"rewards/chosen", reward(model.chosen, reference.chosen)},
            {"rewards/rejected", reward(model.rejected, reference.rejected)},
            {"logps/chosen", model.chosen.detach()},
            {"logps/rejected", model.rejected.detach()}};
  }

 private:
  DpoOptions options_;
};

void check_reference(const CausalLM& model, const CausalLM& reference, bool is_precomputed) {
  if (is_precomputed) {
    if (reference)
      throw UsageError("dpo_model: with precomputed_reference, no reference is used: give only one of them");
    return;
  }
  if (!reference) {
    if (lora_of(model) == nullptr)
      throw UsageError(
          "dpo_model: a model without an adapter needs a reference: load its folder a second time, or add an "
          "adapter (add_lora)");
    // Whether it can be.
    const AdapterOff off(model);
    return;
  }
  const auto own = model->parameters();
  for (const auto& parameter : reference->parameters()) {
    if (std::any_of(own.begin(), own.end(),
                    [&](const at::Tensor& other) { return other.is_same(parameter); }))
      throw UsageError(
          "dpo_model: the reference has the model's own weights, and would be trained with it: load the "
          "folder a second time");
  }
  const auto sizes = [](const CausalLM& of) { return of->model_config().vocab_size; };
  if (sizes(model) != sizes(reference))
    throw UsageError(
        fmt::format("dpo_model: the reference has a vocabulary of {} tokens, and the model one of {}",
                    sizes(reference), sizes(model)));
}

void freeze_reference(const CausalLM& reference) {
  reference.ptr()->eval();
  for (auto& parameter : reference->parameters()) parameter.requires_grad_(false);
}

/// Pairs with the log-probabilities of a reference.
class PairsWithReference final : public Dataset {
 public:
  /// `log_probs`: float32 [pairs, 2], of the chosen and of the rejected texts.
  PairsWithReference(std::shared_ptr<const Dataset> pairs, at::Tensor log_probs)
      : pairs_(std::move(pairs)), log_probs_(std::move(log_probs)) {}

  std::int64_t size() const override { return pairs_->size(); }
  Example get(std::int64_t index, const SampleContext& context) const override {
    Example example = pairs_->get(index, context);
    example.set(kReferenceChosen, log_probs_[index][0]);
    example.set(kReferenceRejected, log_probs_[index][1]);
    return example;
  }
  std::string fingerprint() const override {
    return fmt::format("[{}] with the log-probabilities of a reference", pairs_->fingerprint());
  }

 private:
  std::shared_ptr<const Dataset> pairs_;
  at::Tensor log_probs_;
};

}  // namespace

void check_dpo_options(const DpoOptions& options) {
  if (!(options.beta > 0))
    throw UsageError(fmt::format("DPO: beta is {}, expected more than 0", options.beta));
  const bool smooths = options.loss_type == DpoLoss::sigmoid || options.loss_type == DpoLoss::robust;
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 0.5))
    throw UsageError(fmt::format("DPO: label_smoothing is {}, expected 0 or more and less than 0.5",
                                 options.label_smoothing));
  if (!smooths && options.label_smoothing > 0)
    throw UsageError("DPO: label_smoothing is for the losses sigmoid and robust");
}

at::Tensor dpo_losses(const OfPairs& model, const OfPairs& reference, const OfPairs& lengths,
                      const DpoOptions& options) {
  const at::Tensor chosen = model.chosen - reference.chosen, rejected = model.rejected - reference.rejected;
  const at::Tensor scaled = (chosen - rejected) * options.beta;
  const double swapped = options.label_smoothing;
  switch (options.loss_type) {
    case DpoLoss::hinge:
      return at::relu(1 - scaled);
    case DpoLoss::ipo: {
      const at::Tensor difference =
          chosen / lengths.chosen.clamp_min(1) - rejected / lengths.rejected.clamp_min(1);
      return (difference - 1 / (2 * options.beta)).square();
    }
    case DpoLoss::robust:
      return (at::log_sigmoid(-scaled) * swapped - at::log_sigmoid(scaled) * (1 - swapped)) /
             (1 - 2 * swapped);
    case DpoLoss::sigmoid:
      break;
  }
  if (swapped == 0) return -at::log_sigmoid(scaled);
  return -at::log_sigmoid(scaled) * (1 - swapped) - at::log_sigmoid(-scaled) * swapped;
}

std::shared_ptr<ModelAdapter> dpo_model(const CausalLM& model, const DpoOptions& options,
                                        const CausalLM& reference) {
  check_dpo_options(options);
  check_reference(model, reference, options.precomputed_reference);
  if (reference) freeze_reference(reference);
  return wrap_model(PreferenceModel(model, reference, options), PreferenceForward(options));
}

CollateFunction preference_collate(std::int64_t pad_token_id) {
  return [pad_token_id](std::vector<Example> examples) {
    const std::pair<const char*, std::int64_t> columns[] = {{kChosenIds, pad_token_id},
                                                            {kChosenLabels, kNoLabel},
                                                            {kRejectedIds, pad_token_id},
                                                            {kRejectedLabels, kNoLabel}};
    std::int64_t longest = 0;
    for (const auto& example : examples)
      for (const auto& [name, padding] : columns) longest = std::max(longest, example[name].numel());
    Batch batch;
    for (const auto& [name, padding] : columns) {
      std::vector<at::Tensor> rows;
      for (const auto& example : examples)
        rows.push_back(pad_to(example[name].to(at::kLong).view({1, -1}), longest, padding));
      batch.set(name, at::cat(rows));
    }
    for (const char* name : {kReferenceChosen, kReferenceRejected}) {
      if (examples.empty() || !examples.front().contains(name)) continue;
      std::vector<at::Tensor> values;
      for (const auto& example : examples) values.push_back(example[name]);
      batch.set(name, at::stack(values));
    }
    for (const auto& example : examples)
      batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
    return batch;
  };
}

OfPairs completion_log_probs(const CausalLM& model, const Batch& batch, std::int64_t logits_at_a_time) {
  const at::NoGradGuard no_grad;
  const auto texts = texts_of(batch, logits_at_a_time);
  return halves(model.ptr()
                    ->token_losses(texts.labels, texts.options, texts.input_ids)
                    .text_losses.neg()
                    .to(at::kFloat));
}

std::shared_ptr<const Dataset> precompute_reference(const Accelerator& accelerator, const CausalLM& reference,
                                                    std::shared_ptr<const Dataset> pairs,
                                                    const CollateFunction& collate, std::int64_t batch_size,
                                                    std::int64_t logits_at_a_time) {
  if (batch_size < 1)
    throw UsageError(fmt::format("precompute_reference: batch_size is {}, expected 1 or more", batch_size));
  const auto device = accelerator.device();
  freeze_reference(reference);
  reference.ptr()->to(device);
  const auto& group = accelerator.process_group();
  const std::int64_t size = pairs->size(), of_round = kBatchesOfRound * batch_size;
  at::Tensor log_probs = at::zeros({size, 2}, at::kFloat);
  for (std::int64_t begin = 0; begin < size; begin += of_round * group.size()) {
    // Rank r computes the batches r, r + N, ... of the round. The last of them may be beyond the end.
    const at::Tensor own = at::zeros({of_round, 2}, at::TensorOptions(at::kFloat).device(device));
    const auto first_of = [&](std::int64_t batch, int rank) {
      return begin + (batch * group.size() + rank) * batch_size;
    };
    for (std::int64_t batch = 0; batch < kBatchesOfRound; ++batch) {
      std::vector<Example> examples;
      const auto first = first_of(batch, group.rank());
      for (auto i = first; i < std::min(first + batch_size, size); ++i)
        examples.push_back(pairs->get_named(i, SampleContext{}));
      if (examples.empty()) break;
      const auto cast = accelerator.autocast();
      const auto found =
          completion_log_probs(reference, collate(std::move(examples)).to(device), logits_at_a_time);
      own.narrow(0, batch * batch_size, found.chosen.numel())
          .copy_(at::stack({found.chosen, found.rejected}, 1));
    }
    const auto all = group.size() > 1 ? group.all_gather(own) : std::vector{own};
    for (int rank = 0; rank < group.size(); ++rank) {
      for (std::int64_t batch = 0; batch < kBatchesOfRound; ++batch) {
        const auto first = first_of(batch, rank), count = std::min(batch_size, size - first);
        if (count > 0)
          log_probs.narrow(0, first, count)
              .copy_(all[static_cast<std::size_t>(rank)].narrow(0, batch * batch_size, count));
      }
    }
  }
  return std::make_shared<PairsWithReference>(std::move(pairs), std::move(log_probs));
}

}  // namespace lockstep::models

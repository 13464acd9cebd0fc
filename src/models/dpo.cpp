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
constexpr const char* kReferenceChosen = "ref_chosen_logps";
constexpr const char* kReferenceRejected = "ref_rejected_logps";

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

std::shared_ptr<const Dataset> precompute_reference(const Accelerator& accelerator, const CausalLM& reference,
                                                    std::shared_ptr<const Dataset> pairs,
                                                    const CollateFunction& collate, std::int64_t batch_size,
                                                    std::int64_t logits_at_a_time) {
  if (batch_size < 1)
    throw UsageError(fmt::format("precompute_reference: batch_size is {}, expected 1 or more", batch_size));
  const at::NoGradGuard no_grad;
  const auto device = accelerator.device();
  freeze_reference(reference);
  reference.ptr()->to(device);
  const auto& group = accelerator.process_group();
  // Parts of one size, of which the last may be beyond the end.
  const std::int64_t of_each = (pairs->size() + group.size() - 1) / group.size();
  const std::int64_t begin = of_each * group.rank(), end = std::min(begin + of_each, pairs->size());
  const at::Tensor own = at::zeros({of_each, 2}, at::TensorOptions(at::kFloat).device(device));
  for (std::int64_t first = begin; first < end; first += batch_size) {
    std::vector<Example> examples;
    for (auto i = first; i < std::min(first + batch_size, end); ++i)
      examples.push_back(pairs->get_named(i, SampleContext{}));
    const auto texts = texts_of(collate(std::move(examples)).to(device), logits_at_a_time);
    const auto cast = accelerator.autocast();
    const at::Tensor losses =
        reference.ptr()->token_losses(texts.labels, texts.options, texts.input_ids).text_losses;
    const auto parts = losses.neg().to(at::kFloat).chunk(2);
    own.slice(0, first - begin, first - begin + parts[0].numel()).copy_(at::stack({parts[0], parts[1]}, 1));
  }
  const at::Tensor all = group.size() > 1 ? at::cat(group.all_gather(own)) : own;
  at::Tensor log_probs = all.slice(0, 0, pairs->size()).to(at::kCPU).contiguous();
  return std::make_shared<PairsWithReference>(std::move(pairs), std::move(log_probs));
}

}  // namespace lockstep::models

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/collate.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::models {

// Direct preference optimization (Rafailov et al., 2023): of two completions of a prompt, the model learns to
// prefer the chosen one to the rejected one, without moving far from a reference model.
//
//     models::add_lora(model, {.r = 16});                            // its reference: the model without it
//     models::DpoTrainer trainer(accelerator, args,
//                                {.model = models::dpo_model(model), .train_dataset = pairs,
//                                 .data_collator = models::preference_collate(pad)});
//
// Names and values are those of trl's DPOTrainer.

enum class DpoLoss {
  /// -log sigmoid(beta * d), where d is how much more the model prefers the chosen completion than the
  /// reference does, in log-probabilities. With label_smoothing e, a share e of the pairs counts as swapped:
  /// (1 - e) times this plus e times that of -d (conservative DPO).
  sigmoid,
  /// The same, corrected so that it is unbiased if a share label_smoothing of the pairs is swapped
  /// (Chowdhury et al., 2024).
  robust,
  /// max(0, 1 - beta * d)
  hinge,
  /// (d' - 1 / (2 beta))^2, where d' is of log-probabilities per token (Azar et al., 2023).
  ipo,
};

struct DpoOptions {
  DpoLoss loss_type = DpoLoss::sigmoid;
  /// How strongly the model is held to the reference.
  double beta = 0.1;
  /// Of sigmoid and robust: the share of pairs that are taken to be swapped, below 0.5.
  double label_smoothing = 0;
  /// Train without the dropout of model and adapter.
  bool disable_dropout = true;
  /// The batches have the reference's log-probabilities: see precompute_reference().
  bool precomputed_reference = false;
  /// See TokenLossOptions.
  std::int64_t logits_at_a_time = 0;
};

/// Throws UsageError for options that are out of range, or that the loss does not have. *Local*.
void check_dpo_options(const DpoOptions& options);

/// Of each pair's two completions, float tensors [pairs]: their log-probabilities, or their numbers of
/// tokens.
struct OfPairs {
  at::Tensor chosen, rejected;
};

/// The loss of each pair [pairs], of the completions' log-probabilities by the model and by the reference,
/// and of their numbers of tokens. *Local*.
at::Tensor dpo_losses(const OfPairs& model, const OfPairs& reference, const OfPairs& lengths,
                      const DpoOptions& options);

/// A Trainer's model. A batch has int64 "chosen_ids", "chosen_labels", "rejected_ids" and "rejected_labels"
/// [pairs, tokens]; a label is the token, or kNoLabel in the prompt and in the padding, which is at the end.
/// The outputs are the loss, "loss_sum" and "loss_weight", the number of pairs, so that each pair weighs the
/// same on any number of ranks; and of each pair "logps/chosen", "logps/rejected", "rewards/chosen" and
/// "rewards/rejected", beta times the log-ratios to the reference.
///
/// Whole logits never exist (see TokenLossOptions::texts). The reference is computed in the same forward, and
/// communicates nothing of its own. `reference`: null for a model with an adapter, without which it is its
/// own. A second model is frozen, moved to the device of the first batch, in evaluation mode, whole on each
/// rank and in no checkpoint; with precomputed_reference there is none. *Local*. Throws UsageError without a
/// reference, or with one too many, if the two have the same weights, for an adapter that cannot be switched
/// off (see AdapterOff), and as check_dpo_options().
std::shared_ptr<ModelAdapter> dpo_model(const CausalLM& model, const DpoOptions& options = {},
                                        const CausalLM& reference = nullptr);

/// Pads samples with the tensors of such a batch, each [tokens], to the longest text of theirs, at the end.
/// Log-probabilities of a reference are stacked. *Local*.
CollateFunction preference_collate(std::int64_t pad_token_id);

/// The names of a reference's log-probabilities, float32 scalars, in the samples of precomputed pairs.
constexpr const char* kReferenceChosen = "ref_chosen_logps";
constexpr const char* kReferenceRejected = "ref_rejected_logps";

/// The log-probabilities of the completions in a batch as dpo_model() takes it, by a model that is whole, on
/// the model's device, without a graph: float32 [pairs]. *Local*.
OfPairs completion_log_probs(const CausalLM& model, const Batch& batch, std::int64_t logits_at_a_time = 0);

/// The samples of a data set with the log-probabilities of a reference. With them, no reference is in memory
/// or computed while the model trains, at the cost of one pass over the data and 8 bytes for each pair:
///
///     auto collate = models::preference_collate(pad);
///     auto pairs = models::precompute_reference(accelerator, reference, tokens, collate);
///     auto trained = models::dpo_model(model, {.precomputed_reference = true});
///
/// Nothing is kept: a program that is started again, also one that resumes a run, computes it again. (The
/// program `dpo` keeps it: a map() over its rows calls completion_log_probs().) The ranks compute batches of
/// `batch_size` pairs in turn, in the Accelerator's precision, and exchange the results every few batches, so
/// that none is far ahead of the others. `reference`: whole on each rank; it is frozen, and moved to the
/// Accelerator's device in evaluation mode. *Collective*. Throws UsageError for a batch_size below 1.
std::shared_ptr<const Dataset> precompute_reference(const Accelerator& accelerator, const CausalLM& reference,
                                                    std::shared_ptr<const Dataset> pairs,
                                                    const CollateFunction& collate,
                                                    std::int64_t batch_size = 8,
                                                    std::int64_t logits_at_a_time = 0);

/// "rewards/chosen", "rewards/rejected", "rewards/accuracies" (the share of pairs whose chosen completion has
/// the higher reward), "rewards/margins", "logps/chosen" and "logps/rejected" of an evaluation: means over
/// the pairs of all ranks.
ComputeMetrics dpo_metrics();

/// A Trainer for dpo_model() that logs the same means over the steps since the last log beside their loss,
/// and with each evaluation. Checkpoints have the sums, so that a resumed run logs the same.
class DpoTrainer : public Trainer {
 public:
  /// As Trainer. Throws UsageError for a label_smoothing_factor, which means another smoothing: see
  /// DpoOptions; and for cuda_graphs, whose steps compute no sums.
  DpoTrainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts);

  Loss compute_loss(const Batch& outputs, const Batch& batch) override;
  void log(LogValues values) override;
  /// Of both texts of each pair. What a reference computes is not counted, as in trl.
  double floating_point_operations(const Batch& batch) override;

 private:
  class Sums;
  class Registration;
  std::shared_ptr<Sums> sums_;
};

}  // namespace lockstep::models

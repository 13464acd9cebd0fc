#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/models/in_batch_negatives.hpp"
#include "lockstep/models/sentence_encoder.hpp"
#include "lockstep/train/trainer.hpp"

/// A Trainer for an encoder of texts. Its batches are those of samples.hpp; the loss is that of the texts of
/// all ranks, with mini_batch_size computed by a GradCache. In an evaluation, whose ranks may have different
/// numbers of batches, it is that of a rank's batch, and the outputs have the vectors of each text.
class ContrastiveTrainer : public lockstep::Trainer {
 public:
  struct Contrast {
    lockstep::models::InBatchNegativesOptions loss = {};
    /// 0: without a GradCache.
    std::int64_t mini_batch_size = 0;
  };

  /// `parts` without a model.
  ContrastiveTrainer(const lockstep::Accelerator& accelerator, lockstep::TrainingArguments args,
                     lockstep::TrainerComponents parts, const lockstep::models::SentenceEncoder& encoder,
                     const Contrast& contrast);

  lockstep::Loss training_step(const lockstep::Batch& batch) override;

 private:
  /// Stops communication of the gradients while it exists; set by the model's forward.
  using Silence = std::function<std::shared_ptr<void>()>;

  ContrastiveTrainer(const lockstep::Accelerator& accelerator, lockstep::TrainingArguments args,
                     lockstep::TrainerComponents parts, const lockstep::models::SentenceEncoder& encoder,
                     const Contrast& contrast, std::shared_ptr<Silence> silence);

  Contrast contrast_;
  std::shared_ptr<Silence> silence_;
};

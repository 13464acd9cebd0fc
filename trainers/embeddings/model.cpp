#include "model.hpp"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <utility>

#include "lockstep/models/grad_cache.hpp"
#include "samples.hpp"
#include "scores.hpp"

namespace {

using lockstep::Batch;
using lockstep::models::InBatchNegatives;
using lockstep::models::InBatchNegativesOptions;
using lockstep::models::SentenceEncoder;
using Tensors = std::vector<at::Tensor>;

/// One forward for all texts of a batch, which is what DistributedDataParallel needs: of the ids and masks of
/// each, one behind the other, the vectors of each.
class TextsEncoderImpl : public torch::nn::Module {
 public:
  explicit TextsEncoderImpl(SentenceEncoder encoder)
      : encoder_(register_module("encoder", std::move(encoder))) {}

  Tensors forward(const Tensors& ids_and_masks) {
    Tensors vectors;
    for (std::size_t i = 0; i < ids_and_masks.size(); i += 2)
      vectors.push_back(encoder_->forward(ids_and_masks[i], ids_and_masks[i + 1]));
    return vectors;
  }

 private:
  SentenceEncoder encoder_;
};
TORCH_MODULE(TextsEncoder);

/// The outputs of a TextsEncoder, whether it is wrapped or not.
class ContrastForward {
 public:
  using Silence = std::function<std::shared_ptr<void>()>;
  ContrastForward(const InBatchNegativesOptions& loss, std::shared_ptr<Silence> silence)
      : loss_(loss), silence_(std::move(silence)) {}

  Batch operator()(auto& wrapped, const Batch& batch) const {
    Tensors texts;
    for (std::size_t i = 0; batch.contains(ids_column(i)); ++i) {
      texts.push_back(batch[ids_column(i)]);
      texts.push_back(batch[mask_column(i)]);
    }
    const Tensors vectors = wrapped(texts);
    Batch outputs;
    for (std::size_t i = 0; i < vectors.size(); ++i) outputs.set(vectors_output(i), vectors[i]);
    const bool is_contrast = vectors.size() > 1 && !batch.contains(kScoreColumn);
    if constexpr (requires { wrapped.no_sync(); }) {
      *silence_ = [&wrapped] {
        using NoSync = decltype(wrapped.no_sync());
        return std::shared_ptr<void>(std::shared_ptr<NoSync>(new NoSync(wrapped.no_sync())));
      };
      if (is_contrast) outputs.set("loss", InBatchNegatives(wrapped.process_group(), loss_)(vectors));
    } else if (is_contrast) {
      const auto rows = vectors[0].size(0);
      outputs.set("loss_sum", InBatchNegatives(loss_)(vectors) * rows);
      outputs.set("loss_weight", at::full({}, rows, at::kLong));
    }
    return outputs;
  }

 private:
  InBatchNegativesOptions loss_;
  std::shared_ptr<Silence> silence_;
};

lockstep::TrainingArguments with_labels(lockstep::TrainingArguments args) {
  if (args.label_names.empty()) args.label_names = {ids_column(1)};
  return args;
}

}  // namespace

ContrastiveTrainer::ContrastiveTrainer(const lockstep::Accelerator& accelerator,
                                       lockstep::TrainingArguments args, lockstep::TrainerComponents parts,
                                       const SentenceEncoder& encoder, const Contrast& contrast)
    : ContrastiveTrainer(accelerator, std::move(args), std::move(parts), encoder, contrast,
                         std::make_shared<Silence>()) {}

ContrastiveTrainer::ContrastiveTrainer(const lockstep::Accelerator& accelerator,
                                       lockstep::TrainingArguments args, lockstep::TrainerComponents parts,
                                       const SentenceEncoder& encoder, const Contrast& contrast,
                                       std::shared_ptr<Silence> silence)
    : Trainer(accelerator, with_labels(std::move(args)),
              [&] {
                parts.model =
                    lockstep::wrap_model(TextsEncoder(encoder), ContrastForward(contrast.loss, silence));
                return std::move(parts);
              }()),
      contrast_(contrast),
      silence_(silence) {}

lockstep::Loss ContrastiveTrainer::training_step(const Batch& batch) {
  if (contrast_.mini_batch_size == 0) return Trainer::training_step(batch);
  std::vector<Batch> texts;
  for (std::size_t i = 0; batch.contains(ids_column(i)); ++i)
    texts.push_back({{ids_column(0), batch[ids_column(i)]}, {mask_column(0), batch[mask_column(i)]}});
  const lockstep::models::GradCache cache(
      {.chunk_rows = contrast_.mini_batch_size,
       .around_chunk = [&](bool is_last) { return is_last ? nullptr : (*silence_)(); },
       .backward = [&](const at::Tensor& scalar) { accelerator().backward(scalar); }});
  const InBatchNegatives contrast(accelerator().process_group(), contrast_.loss);
  return {cache.backward(
      texts, [&](const Batch& chunk) { return model().forward(chunk)[vectors_output(0)]; }, contrast)};
}

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/state/checkpoint_part.hpp"
#include "train/state/frozen_parameters.hpp"

namespace lockstep::train {

/// A prepared model.
struct PreparedModel {
  ModelContents contents;
  WrappedModel wrapped;
  std::shared_ptr<void> owner;
  std::shared_ptr<FrozenParameters> frozen;
};

/// The fully sharded ones among models; `wrapped_of` returns the WrappedModel of an element. *Local*.
template <class Models, class WrappedOf>
ShardedModels pick_sharded(const Models& models, const WrappedOf& wrapped_of) {
  ShardedModels sharded;
  for (const auto& each : models) {
    if (auto* const model = std::invoke(wrapped_of, each).fsdp()) sharded.push_back(model);
  }
  return sharded;
}

/// The models' parameters and buffers. Sharded ones are gathered tensor by tensor. Of a model with an
/// adapter, or if that is asked for, without the frozen parameters that are as the program gave them.
class ModelsPart : public CheckpointPart {
 public:
  explicit ModelsPart(std::vector<PreparedModel> models);
  /// Some of a checkpoint's models, by their numbers in it. Only to be read.
  explicit ModelsPart(const std::vector<std::pair<std::size_t, PreparedModel>>& models);

  const std::vector<PreparedModel>& models() const noexcept { return models_; }
  /// The fully sharded ones among the models.
  ShardedModels sharded_models() const { return pick_sharded(models_, &PreparedModel::wrapped); }
  /// The models' parameters. If two models use the same name, the later one's gets the model's number as a
  /// prefix.
  std::vector<NamedTensor> parameter_names() const;

  void gather(const GatherOptions& options) override;
  void detach(HostCopies& host) override;
  void write(CheckpointFiles& files) const override;
  void describe(CheckpointInfo& info) const override { info.frozen = frozen_; }
  void prepare_reading(const Accelerator& accelerator, const Checkpoint& checkpoint) override;
  void read(const Checkpoint& checkpoint) override;
  /// Without checking that the checkpoint has no other models.
  void read_models(const Checkpoint& checkpoint);
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;
  std::string why_not_given() const override;

 private:
  /// What a file has of a model.
  struct Content {
    std::vector<NamedTensor> tensors;
    bool is_adapter = false;
    /// That of the model's adapter, if it has one; also beside a whole model.
    std::string config;
  };

  Content content_to_save(std::size_t model, const GatherOptions& options);
  std::string file_of(std::size_t model, bool is_adapter) const;
  /// Of the checkpoint's models by their numbers.
  std::string find_file(const Checkpoint& checkpoint, std::size_t number) const;

  std::vector<PreparedModel> models_;
  /// Their numbers in a checkpoint.
  std::vector<std::size_t> numbers_;
  /// Of tensors in the queue there are only meta tensors here.
  std::vector<Content> contents_;
  std::vector<FrozenWeights> frozen_;
  /// What is read of each model, by the names in its file, and how far the program's frozen parameters have
  /// been compared: those that the file lacks.
  std::vector<std::vector<NamedTensor>> wanted_;
  std::vector<FrozenWeights> lacking_;
  std::vector<TensorSource> read_;
};

}  // namespace lockstep::train

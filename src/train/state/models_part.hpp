#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/state/checkpoint_part.hpp"

namespace lockstep::train {

/// A prepared model.
struct PreparedModel {
  std::function<std::vector<NamedTensor>()> tensors;
  WrappedModel wrapped;
  std::shared_ptr<void> owner;
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

/// The name of the file of a checkpoint's `index`-th model.
std::string checkpoint_model_file(std::size_t index);

/// The models' parameters and buffers. Sharded ones are gathered tensor by tensor.
class ModelsPart : public CheckpointPart {
 public:
  explicit ModelsPart(std::vector<PreparedModel> models) : models_(std::move(models)) {}

  const std::vector<PreparedModel>& models() const noexcept { return models_; }
  /// The fully sharded ones among the models.
  ShardedModels sharded_models() const { return pick_sharded(models_, &PreparedModel::wrapped); }
  /// The models' parameters. If two models use the same name, the later one's gets the model's number as a
  /// prefix.
  std::vector<NamedTensor> parameter_names() const;

  void gather(const GatherOptions& options) override;
  void take_local() override;
  void detach(HostCopies& host) override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  std::vector<PreparedModel> models_;
  /// Of tensors in the queue there are only meta tensors here.
  std::vector<std::vector<NamedTensor>> weights_;
  std::vector<TensorSource> read_;
};

}  // namespace lockstep::train

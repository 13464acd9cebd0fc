#include "train/state/models_part.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <map>

#include "train/model_content.hpp"

namespace lockstep::train {

std::string checkpoint_model_file(std::size_t index) { return numbered_file("model", index, ".safetensors"); }

std::vector<NamedTensor> ModelsPart::parameter_names() const {
  std::vector<NamedTensor> names;
  std::map<std::string, const void*> taken;
  for (std::size_t model = 0; model < models_.size(); ++model) {
    for (const auto& entry : models_[model].tensors()) {
      const auto [first, is_new] = taken.emplace(entry.name, entry.tensor.unsafeGetTensorImpl());
      const bool clash = !is_new && first->second != entry.tensor.unsafeGetTensorImpl();
      names.push_back({clash ? fmt::format("model_{}.{}", model, entry.name) : entry.name, entry.tensor});
    }
  }
  return names;
}

void ModelsPart::gather(const GatherOptions& options) {
  const auto sharded = sharded_models();
  if (sharded.empty()) return;
  for (const auto& model : models_) {
    const auto tensors = model.tensors();
    if (options.at_once) {
      weights_.push_back(gather_whole(sharded, tensors, options.writes));
    } else {
      queue_model(options.queue, sharded, tensors);
      weights_.push_back(whole_forms(sharded, tensors));
    }
  }
}

void ModelsPart::take_local() {
  for (std::size_t i = weights_.size(); i < models_.size(); ++i) weights_.push_back(models_[i].tensors());
}

void ModelsPart::detach(HostCopies& host) {
  models_.clear();
  for (auto& model : weights_) {
    // A tensor with several names stays one tensor.
    std::map<const void*, at::Tensor> copies;
    for (auto& entry : model) {
      auto& copy = copies[entry.tensor.unsafeGetTensorImpl()];
      if (!copy.defined()) copy = host.copy(entry.tensor);
      entry.tensor = copy;
    }
  }
}

void ModelsPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    files.add_tensors(checkpoint_model_file(i),
                      [&weights = weights_[i]](const std::filesystem::path& path, const GetTensor& get) {
                        return get ? write_model_file(path, weights, get) : write_model_file(path, weights);
                      });
  }
}

void ModelsPart::read(const Checkpoint& checkpoint) {
  check_file_count(checkpoint.path, "models", models_.size(), checkpoint_model_file);
  for (std::size_t i = 0; i < models_.size(); ++i)
    read_.push_back(
        open_state(sharded_models(), checkpoint.path / checkpoint_model_file(i), models_[i].tensors()));
}

void ModelsPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  read_.resize(models_.size());
  for (std::size_t i = 0; i < models_.size(); ++i)
    scatter_whole(sharded_models(), accelerator.process_group(), read_[i], models_[i].tensors());
}

}  // namespace lockstep::train

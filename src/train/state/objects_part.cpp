#include "train/state/objects_part.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "train/broadcast_tensors.hpp"

namespace lockstep::train {
namespace {

std::string object_file(const std::string& name) { return "custom_checkpoint_" + name + ".safetensors"; }

}  // namespace

void ObjectsPart::gather(const GatherOptions&) {
  for (const auto& [name, object] : objects_) states_.push_back(object->state_dict());
}

void ObjectsPart::detach(HostCopies& host) {
  for (auto& state : states_) {
    for (auto& entry : state.tensors) entry.second = host.copy(entry.second);
  }
}

void ObjectsPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    files.add(object_file(objects_[i].first), [&state = states_[i]](const std::filesystem::path& path) {
      return save_file(state.tensors, path, state.metadata);
    });
  }
}

void ObjectsPart::read(const Checkpoint& checkpoint) {
  for (const auto& [name, object] : objects_) {
    const auto path = checkpoint.path / object_file(name);
    if (!std::filesystem::exists(path)) {
      throw DataError(fmt::format(
          "'{}' has no {}: the training that wrote it had not registered '{}' for checkpoints. Leave it out, "
          "or begin anew.",
          checkpoint.path.string(), object_file(name), name));
    }
    states_.push_back(load_file(path));
  }
}

void ObjectsPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  const auto& group = accelerator.process_group();
  states_.resize(objects_.size());
  for (std::size_t i = 0; i < objects_.size(); ++i) {
    SafeTensors& state = states_[i];
    state.metadata = group.broadcast_object(nlohmann::json(state.metadata), root()).get<TensorMetadata>();
    state.tensors = broadcast_tensors(group, state.tensors, root());
    for (auto& [name, tensor] : state.tensors) tensor = tensor.cpu();
    if (!is_giver(group)) objects_[i].second->load_state_dict(state);
  }
}

}  // namespace lockstep::train

#include "sharded_state.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/train/model_files.hpp"

namespace lockstep::train {
namespace {

FullyShardedDataParallelBase* owner_of(const ShardedModels& models, const at::Tensor& tensor) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const auto* model) { return model->full_sizes(tensor).has_value(); });
  return found == models.end() ? nullptr : *found;
}

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

}  // namespace

ShardedModels sharded_among(const ShardedModels& models, const std::vector<NamedTensor>& state) {
  ShardedModels result = models;
  std::erase_if(result, [&](const auto* model) {
    return std::none_of(state.begin(), state.end(),
                        [&](const auto& entry) { return model->full_sizes(entry.tensor).has_value(); });
  });
  return result;
}

std::vector<NamedTensor> gather_whole(const ShardedModels& models, const std::vector<NamedTensor>& state,
                                      bool keep) {
  if (sharded_among(models, state).empty()) return state;
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  // A tensor that has several names stays one tensor.
  std::map<const void*, at::Tensor> done;
  for (const auto& entry : state) {
    const auto [place, is_new] = done.emplace(identity(entry.tensor), entry.tensor);
    if (const auto* owner = owner_of(models, entry.tensor); owner != nullptr && is_new) {
      const at::Tensor whole = owner->gather_full(entry.tensor, entry.tensor.detach());
      place->second = keep ? whole.cpu() : at::Tensor();
    }
    if (keep) result.push_back({entry.name, place->second});
  }
  return result;
}

std::vector<NamedTensor> whole_forms(const ShardedModels& models, const std::vector<NamedTensor>& state) {
  std::vector<NamedTensor> result;
  std::map<const void*, at::Tensor> done;
  for (const auto& entry : state) {
    const auto [place, is_new] = done.emplace(identity(entry.tensor), entry.tensor);
    if (const auto* owner = owner_of(models, entry.tensor); owner != nullptr && is_new)
      place->second = at::empty(*owner->full_sizes(entry.tensor), entry.tensor.options().device(at::kMeta));
    result.push_back({entry.name, place->second});
  }
  return result;
}

void scatter_whole(const ShardedModels& models, const ProcessGroup& group, const SafeTensors& content,
                   const std::vector<NamedTensor>& state) {
  const at::NoGradGuard no_grad;
  std::map<const void*, at::Tensor> values;
  if (group.rank() == 0) {
    for (const auto& entry : state) {
      const auto found = content.tensors.find(entry.name);
      if (found != content.tensors.end()) values.emplace(identity(entry.tensor), found->second);
    }
  }
  std::set<const void*> done;
  for (const auto& entry : state) {
    if (!done.insert(identity(entry.tensor)).second) continue;
    const auto* const owner = owner_of(models, entry.tensor);
    const at::Tensor whole =
        owner ? at::empty(*owner->full_sizes(entry.tensor), entry.tensor.options()) : entry.tensor.detach();
    if (group.rank() == 0) whole.copy_(values.at(identity(entry.tensor)));
    if (group.size() > 1) group.broadcast(whole);
    if (owner) entry.tensor.detach().copy_(owner->take_part(entry.tensor, whole));
  }
}

}  // namespace lockstep::train

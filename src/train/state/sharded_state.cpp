#include "train/state/sharded_state.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/core/error.hpp"
#include "train/model_content.hpp"

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
  // A tensor with several names stays one tensor.
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

at::Tensor GatheredTensors::get(const std::string& name) {
  if (rest_.empty() || rest_.front().name != name) throw Error("'" + name + "' is gathered out of order");
  const Entry entry = std::move(rest_.front());
  rest_.pop_front();
  return entry.gather();
}

void GatheredTensors::drop_rest() {
  while (!empty()) get(std::string(rest_.front().name));
}

void queue_model(GatheredTensors& gathered, const ShardedModels& models,
                 const std::vector<NamedTensor>& state, std::uint64_t max_shard_bytes) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : state) tensors.emplace(entry.name, entry.tensor);
  for (const auto& name : model_file_order(whole_forms(models, state), max_shard_bytes)) {
    const at::Tensor& tensor = tensors.at(name);
    const auto* const owner = owner_of(models, tensor);
    gathered.add(name,
                 [owner, tensor] { return owner ? owner->gather_full(tensor, tensor.detach()) : tensor; });
  }
}

TensorSource open_state(const ShardedModels& models, const std::filesystem::path& path,
                        const std::vector<NamedTensor>& state) {
  TensorSource content = open_for_model(path, whole_forms(models, state));
  return sharded_among(models, state).empty() ? source_of(get_tensors(content)) : content;
}

void scatter_whole(const ShardedModels& models, const ProcessGroup& group, const TensorSource& content,
                   const std::vector<NamedTensor>& state, int root) {
  const at::NoGradGuard no_grad;
  std::map<const void*, std::string> names;
  if (group.rank() == root) {
    for (const auto& entry : state)
      if (content.forms.contains(entry.name)) names.emplace(identity(entry.tensor), entry.name);
  }
  std::string failure;
  std::set<const void*> done;
  for (const auto& entry : state) {
    if (!done.insert(identity(entry.tensor)).second) continue;
    const auto* const owner = owner_of(models, entry.tensor);
    const at::Tensor whole =
        owner ? at::empty(*owner->full_sizes(entry.tensor), entry.tensor.options()) : entry.tensor.detach();
    if (group.rank() == root && failure.empty()) {
      try {
        whole.copy_(content.get_tensor(names.at(identity(entry.tensor))));
      } catch (const DataError& error) {
        // Continue: the other ranks wait for all tensors.
        failure = error.what();
      }
    }
    if (group.size() > 1) group.broadcast(whole, root);
    if (owner) entry.tensor.detach().copy_(owner->take_part(entry.tensor, whole));
  }
  if (!sharded_among(models, state).empty()) failure = group.broadcast_object(failure, root);
  if (!failure.empty()) throw DataError("the model is only partly loaded: " + failure);
}

}  // namespace lockstep::train

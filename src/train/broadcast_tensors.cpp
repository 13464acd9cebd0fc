#include "broadcast_tensors.hpp"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using nlohmann::json;

json forms_of(const TensorMap& tensors) {
  json forms = json::array();
  for (const auto& [name, tensor] : tensors) {
    forms.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  }
  return forms;
}

at::Tensor empty_of(const json& form, const at::Device& device) {
  return at::empty(form[2].get<std::vector<std::int64_t>>(),
                   at::TensorOptions(device).dtype(static_cast<at::ScalarType>(form[1].get<int>())));
}

}  // namespace

void broadcast_values(const ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  for (const auto& entry : tensors) group.broadcast(entry.tensor.detach());
}

TensorMap broadcast_tensors(const ProcessGroup& group, const TensorMap& tensors, int root,
                            const std::function<bool(const std::string& name)>& keep) {
  if (group.size() == 1) return tensors;
  const at::NoGradGuard no_grad;
  const bool sends = group.rank() == root;
  TensorMap result;
  for (const auto& form : group.broadcast_object(sends ? forms_of(tensors) : json::array(), root)) {
    const auto name = form[0].get<std::string>();
    const at::Tensor tensor =
        sends ? tensors.at(name).detach().to(group.device()).contiguous() : empty_of(form, group.device());
    group.broadcast(tensor, root);
    if (!keep || keep(name)) result.emplace(name, tensor);
  }
  return result;
}

}  // namespace lockstep::train

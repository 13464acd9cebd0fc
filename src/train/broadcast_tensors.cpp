#include "train/broadcast_tensors.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.hpp"

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

TensorMap broadcast_tensors(const ProcessGroup& group, const TensorMap& tensors, int root,
                            const TakeTensor& take) {
  if (group.size() == 1) return tensors;
  return broadcast_tensors(group, source_of(tensors), root, take);
}

TensorMap broadcast_tensors(const ProcessGroup& group, const TensorSource& tensors, int root,
                            const TakeTensor& take) {
  const at::NoGradGuard no_grad;
  const bool sends = group.rank() == root;
  std::string failure;
  TensorMap result;
  for (const auto& form : group.broadcast_object(sends ? forms_of(tensors.forms) : json::array(), root)) {
    const auto name = form[0].get<std::string>();
    at::Tensor tensor;
    if (sends && failure.empty()) {
      try {
        tensor = tensors.get_tensor(name).detach().to(group.device()).contiguous();
      } catch (const DataError& error) {
        // Continue: the other ranks wait for all tensors.
        failure = error.what();
      }
    }
    if (!tensor.defined()) tensor = empty_of(form, group.device());
    if (group.size() > 1) group.broadcast(tensor, root);
    at::Tensor taken = take ? take(name, tensor) : tensor;
    if (taken.defined()) result.emplace(name, std::move(taken));
  }
  failure = group.broadcast_object(failure, root);
  if (!failure.empty()) throw DataError(failure);
  return result;
}

}  // namespace lockstep::train

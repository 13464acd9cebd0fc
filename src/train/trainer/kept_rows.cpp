#include "kept_rows.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::train {
namespace {

/// What transformers fills up predictions with.
constexpr double kFill = -100;

/// Tensors that may differ in dimension 1, one below the other.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::int64_t widest = 0;
  for (const auto& tensor : tensors) widest = std::max(widest, tensor.dim() > 1 ? tensor.size(1) : 0);
  std::vector<at::Tensor> filled;
  for (const auto& tensor : tensors) {
    if (tensor.dim() < 2 || tensor.size(1) == widest) {
      filled.push_back(tensor);
      continue;
    }
    auto shape = tensor.sizes().vec();
    shape[1] = widest - shape[1];
    filled.push_back(at::cat({tensor, at::full(shape, kFill, tensor.options())}, 1));
  }
  return at::cat(filled);
}

}  // namespace

void KeptRows::add(const Batch& tensors, std::int64_t rows) {
  for (const auto& [name, tensor] : tensors.items()) {
    if (tensor.dim() > 0 && tensor.size(0) == rows) kept_[name].push_back(tensor.detach());
  }
}

/// The newest are on the device, if any are.
void KeptRows::move_to_host() {
  for (auto& [name, tensors] : kept_) {
    for (auto tensor = tensors.rbegin(); tensor != tensors.rend() && !tensor->is_cpu(); ++tensor)
      *tensor = tensor->cpu();
  }
}

/// The names that some rank has: one may have read nothing.
std::vector<std::string> KeptRows::names_of_all() const {
  std::vector<std::string> names;
  for (const auto& entry : kept_) names.push_back(entry.first);
  const auto all = accelerator_.gather_object(names);
  const std::set<std::string> different(all.begin(), all.end());
  return {different.begin(), different.end()};
}

at::Tensor KeptRows::gathered(const std::string& name) {
  const auto& own = kept_[name];
  at::Tensor tensor = own.empty() ? at::Tensor() : joined(own).cpu();
  nlohmann::json form;
  if (tensor.defined())
    form = {{"type", static_cast<int>(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}};
  const auto forms = accelerator_.gather_object(std::vector<nlohmann::json>{form});
  const auto known =
      std::find_if(forms.begin(), forms.end(), [](const auto& one) { return one.is_object(); });
  if (!tensor.defined()) {
    auto shape = (*known)["shape"].get<std::vector<std::int64_t>>();
    shape[0] = 0;
    tensor = at::empty(shape, static_cast<at::ScalarType>((*known)["type"].get<int>()));
  }
  tensor = tensor.to(accelerator_.device());
  if (tensor.dim() > 1) tensor = accelerator_.pad_across_processes(tensor, 1, kFill);
  return accelerator_.gather(tensor).cpu();
}

Batch KeptRows::gathered(const at::Tensor& order) {
  move_to_host();
  Batch result;
  for (const auto& name : names_of_all()) result.set(name, gathered(name).index_select(0, order));
  return result;
}

}  // namespace lockstep::train

#include "train/trainer/prediction_gatherer.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

/// transformers' padding value for predictions.
constexpr double kFill = -100;

/// A type that holds the values of `type` and the padding. Booleans are masks: what was not there is false.
at::ScalarType padded_type(const std::string& name, at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return at::kShort;
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
      return at::kLong;
    case at::kUInt64:
      throw UsageError("evaluation: the rows of '" + name +
                       "' differ in length and are padded with -100, which UInt64 cannot hold: convert it, "
                       "for example to int64");
    default:
      return type;
  }
}

/// Appends tensors to `rows`, padded to its width if they have one.
at::Tensor concatenate_rows(const at::Tensor& rows, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all{rows};
  for (const auto& tensor : tensors) {
    all.push_back(tensor.to(rows.scalar_type()));
    if (rows.dim() < 2 || tensor.dim() != rows.dim() || tensor.size(1) == rows.size(1)) continue;
    std::vector<std::int64_t> sides(2 * static_cast<std::size_t>(tensor.dim() - 1));
    sides.back() = rows.size(1) - tensor.size(1);
    all.back() = at::constant_pad_nd(all.back(), sides, tensor.scalar_type() == at::kBool ? 0 : kFill);
  }
  return at::cat(all);
}

}  // namespace

void PredictionGatherer::add(const Batch& tensors, std::int64_t rows) {
  rows_ += rows;
  for (const auto& [name, tensor] : tensors.items()) {
    if (tensor.dim() > 0 && tensor.size(0) == rows) kept_[name].push_back(tensor.detach());
  }
}

/// Tensors are moved in order, so those still on the device are the last ones.
void PredictionGatherer::move_to_host() {
  for (auto& [name, tensors] : kept_) {
    for (auto tensor = tensors.rbegin(); tensor != tensors.rend() && !tensor->is_cpu(); ++tensor)
      *tensor = tensor->cpu();
  }
}

/// The names that have a row for each of every rank's rows; a rank may have read nothing.
std::vector<std::string> PredictionGatherer::names_of_all() const {
  nlohmann::json own{{"rows", rows_}, {"names", nlohmann::json::object()}};
  for (const auto& [name, tensors] : kept_) {
    std::int64_t rows = 0;
    for (const auto& tensor : tensors) rows += tensor.size(0);
    own["names"][name] = rows;
  }
  const auto all = accelerator_.gather_object(std::vector<nlohmann::json>{own});
  std::set<std::string> names;
  for (const auto& rank : all) {
    for (const auto& entry : rank["names"].items()) names.insert(entry.key());
  }
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const nlohmann::json& rank) {
      return rank["names"].value(name, std::int64_t{0}) != rank["rows"];
    });
  });
  return {names.begin(), names.end()};
}

at::Tensor PredictionGatherer::gathered(const std::string& name) {
  const auto& own = kept_[name];
  std::set<std::int64_t> widths;
  for (const auto& tensor : own)
    if (tensor.dim() > 1) widths.insert(tensor.size(1));
  nlohmann::json form;
  if (!own.empty())
    form = {{"type", static_cast<int>(own.front().scalar_type())},
            {"shape", own.front().sizes().vec()},
            {"widths", widths}};
  auto forms = accelerator_.gather_object(std::vector<nlohmann::json>{form});
  std::erase_if(forms, [](const nlohmann::json& one) { return one.is_null(); });
  for (const auto& one : forms) widths.merge(one["widths"].get<std::set<std::int64_t>>());
  auto type = static_cast<at::ScalarType>(forms.front()["type"].get<int>());
  if (widths.size() > 1) type = padded_type(name, type);
  std::vector<std::int64_t> shape = forms.front()["shape"];
  shape[0] = 0;
  if (shape.size() > 1) shape[1] = *widths.rbegin();
  return accelerator_.gather(concatenate_rows(at::empty(shape, type), own).to(accelerator_.device())).cpu();
}

Batch PredictionGatherer::gathered(const at::Tensor& order) {
  move_to_host();
  Batch result;
  for (const auto& name : names_of_all()) result.set(name, gathered(name).index_select(0, order));
  return result;
}

}  // namespace lockstep::train

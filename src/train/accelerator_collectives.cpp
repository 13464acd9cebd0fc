#include <ATen/ATen.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "data/valid_samples.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/structures.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

json wire_form(const at::Tensor& tensor) {
  return {{"dtype", c10::toString(tensor.scalar_type())},
          {"device", c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true)},
          {"sizes", tensor.sizes().vec()}};
}

std::string to_text(const json& form) {
  const std::string device = form.at("device");
  return form.at("dtype").get<std::string>() + " " + json_text(form.at("sizes")) +
         (device == "cpu" ? "" : " on " + device);
}

/// Throws, listing each rank's form, unless `relevant` maps all forms to the same value.
template <class Relevant>
void check_forms(const char* operation, int rank, const std::vector<json>& forms, const Relevant& relevant) {
  const auto same = [&](const json& form) { return relevant(form) == relevant(forms.front()); };
  if (std::all_of(forms.begin(), forms.end(), same)) return;
  std::string text;
  for (std::size_t r = 0; r < forms.size(); ++r) {
    text += fmt::format("{}rank {} has {}", r == 0 ? "" : "; ", r, to_text(forms[r]));
  }
  throw CommunicationError(fmt::format("rank {}: {} of tensors that do not fit: {}", rank, operation, text));
}

at::Tensor with_rows(const at::Tensor& tensor, std::int64_t rows) {
  if (tensor.size(0) == rows) return tensor.contiguous();
  auto sizes = tensor.sizes().vec();
  sizes[0] = rows;
  at::Tensor result = at::zeros(sizes, tensor.options());
  result.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return result;
}

constexpr const char* kForMetrics = "gather_for_metrics";

/// The numbers of all ranks, in rank order.
template <class Value>
std::vector<Value> gathered_numbers(const ProcessGroup& group, const std::vector<Value>& mine) {
  std::vector<Value> all;
  for (const json& part : group.all_gather_object(json(mine))) {
    for (const auto& value : part) all.push_back(value.get<Value>());
  }
  return all;
}

/// Whether tensors of this type can have the value.
bool can_hold(at::ScalarType type, double value) {
  if (!at::isIntegralType(type, /*includeBool=*/true)) return true;
  if (type == at::kBool) return value == 0 || value == 1;
  const int bits = static_cast<int>(at::elementSize(type)) * 8 - (at::isSignedType(type) ? 1 : 0);
  const double limit = std::ldexp(1.0, bits);
  return value == std::trunc(value) && value < limit && value >= (at::isSignedType(type) ? -limit : 0);
}

}  // namespace

at::Tensor Accelerator::gather(const at::Tensor& tensor) const {
  const at::Tensor rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  if (num_processes() == 1) return rows.detach().clone();
  const auto forms = process_group().all_gather_object(wire_form(rows));
  check_forms("gather", process_group().rank(), forms, [](json form) {
    form["sizes"].erase(0);
    return form;
  });
  std::int64_t most = 0;
  for (const auto& form : forms) most = std::max(most, form.at("sizes").at(0).get<std::int64_t>());
  if (most == 0) return rows.detach().clone();
  auto parts = process_group().all_gather(with_rows(rows.detach(), most));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r] = parts[r].narrow(0, 0, forms[r].at("sizes").at(0).get<std::int64_t>());
  }
  return at::cat(parts);
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, ReduceOp op) const {
  if (num_processes() == 1) return tensor.detach().clone();
  const auto forms = process_group().all_gather_object(wire_form(tensor));
  check_forms("reduce", process_group().rank(), forms, [](const json& form) { return form; });
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  process_group().all_reduce(result, op);
  return result;
}

Batch Accelerator::gather(const Batch& batch) const {
  Batch all = tree_map(batch, [this](const at::Tensor& tensor) { return gather(tensor); });
  all.indices = gathered_numbers(process_group(), batch.indices);
  all.valid = gathered_numbers(process_group(), batch.valid);
  for (const auto& [name, texts] : batch.text_items()) all.set_texts(name, gather_object(texts));
  return all;
}

at::Tensor Accelerator::gather_for_metrics(const at::Tensor& tensor, const Batch& batch) const {
  return gather(data::valid_rows(tensor, batch, kForMetrics));
}

Batch Accelerator::gather_for_metrics(const Batch& batch) const {
  return gather(data::valid_samples(batch, kForMetrics));
}

std::vector<json> Accelerator::gather_object(const std::vector<json>& objects) const {
  return gathered_numbers(process_group(), objects);
}

std::vector<std::string> Accelerator::gather_object(const std::vector<std::string>& objects) const {
  // Lengths and bytes are sent separately, because JSON strings cannot hold arbitrary bytes.
  std::vector<std::size_t> own;
  std::string bytes;
  for (const auto& object : objects) {
    own.push_back(object.size());
    bytes += object;
  }
  const auto lengths = gathered_numbers(process_group(), own);
  std::string joined;
  for (const auto& each : process_group().all_gather_object(bytes)) joined += each;
  std::vector<std::string> all;
  std::size_t begin = 0;
  for (const auto length : lengths) {
    all.push_back(joined.substr(begin, length));
    begin += length;
  }
  return all;
}

at::Tensor Accelerator::pad_across_processes(const at::Tensor& tensor, std::int64_t dim, double pad_index,
                                             bool pad_first) const {
  if (num_processes() == 1) return tensor;
  // Also for a tensor without the dimension: it may have it on another rank, which would wait.
  const auto forms = process_group().all_gather_object(wire_form(tensor));
  check_forms("pad_across_processes", process_group().rank(), forms, [](json form) {
    form["sizes"] = form["sizes"].size();
    return form;
  });
  if (dim >= tensor.dim() || dim < -tensor.dim()) return tensor;
  const auto place = static_cast<std::size_t>(dim < 0 ? dim + tensor.dim() : dim);
  auto sizes = tensor.sizes().vec();
  for (const auto& form : forms)
    sizes[place] = std::max(sizes[place], form["sizes"][place].get<std::int64_t>());
  const auto axis = static_cast<std::int64_t>(place);
  const auto missing = sizes[place] - tensor.size(axis);
  const bool pads = std::any_of(forms.begin(), forms.end(), [&](const json& form) {
    return form["sizes"][place].get<std::int64_t>() != sizes[place];
  });
  // On every rank, also on those that need no padding.
  if (pads && !can_hold(tensor.scalar_type(), pad_index)) {
    throw UsageError(
        fmt::format("pad_across_processes: {} cannot hold pad_index {}: convert the tensor, or pad "
                    "with another value",
                    c10::toString(tensor.scalar_type()), pad_index));
  }
  // Needs no value to fill with, which a dtype may not have: bytes have no -100.
  if (missing == 0) return tensor.detach();
  at::Tensor result = at::full(sizes, pad_index, tensor.options().requires_grad(false));
  result.narrow(axis, pad_first ? missing : 0, tensor.size(axis)).copy_(tensor.detach());
  return result;
}

at::Tensor Accelerator::broadcast(const at::Tensor& tensor, int from) const {
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  if (num_processes() == 1) return result;
  const auto forms = process_group().all_gather_object(wire_form(tensor));
  check_forms("broadcast", process_group().rank(), forms, [](const json& form) { return form; });
  process_group().broadcast(result, from);
  return result;
}

}  // namespace lockstep

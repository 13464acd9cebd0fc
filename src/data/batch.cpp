#include "lockstep/data/batch.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

template <typename Items>
auto find_item(Items& items, std::string_view name) {
  return std::find_if(items.begin(), items.end(), [name](const auto& item) { return item.first == name; });
}

std::string quote_names_of(const auto& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.first);
  return quote_names(names);
}

void check_free(const auto& items, const std::string& name, const char* kind) {
  if (find_item(items, name) == items.end()) return;
  throw UsageError(fmt::format("the batch has {} named '{}' already: tensors and texts need different names.",
                               kind, name));
}

}  // namespace

Batch::Batch(std::initializer_list<Item> items) {
  for (const auto& [name, tensor] : items) insert(name, tensor);
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  const auto found = find_item(items_, name);
  if (found != items_.end()) return found->second;
  if (find_item(texts_, name) != texts_.end())
    throw UsageError(fmt::format("'{}' of the batch is texts, not a tensor: read them with texts().", name));
  throw UsageError(fmt::format("the batch has no tensor named '{}'. Its names: {}.", name,
                               empty() ? "none: the batch is empty" : quote_names_of(items_)));
}

const std::vector<std::string>& Batch::texts(std::string_view name) const {
  const auto found = find_item(texts_, name);
  if (found != texts_.end()) return found->second;
  throw UsageError(fmt::format("the batch has no texts named '{}'. Its texts: {}; its tensors: {}.", name,
                               quote_names_of(texts_), quote_names_of(items_)));
}

void Batch::set_texts(std::string name, std::vector<std::string> texts) {
  const auto found = find_item(texts_, name);
  if (found != texts_.end()) {
    found->second = std::move(texts);
    return;
  }
  check_free(items_, name, "a tensor");
  texts_.emplace_back(std::move(name), std::move(texts));
}

void Batch::set(std::string name, at::Tensor tensor) {
  const auto found = find_item(items_, name);
  if (found != items_.end()) {
    found->second = std::move(tensor);
    return;
  }
  check_free(texts_, name, "texts");
  items_.emplace_back(std::move(name), std::move(tensor));
}

void Batch::insert(std::string name, at::Tensor tensor) {
  if (contains(name)) {
    throw UsageError("the batch has a tensor named '" + name + "' already. Use set() to replace it.");
  }
  set(std::move(name), std::move(tensor));
}

bool Batch::contains(std::string_view name) const noexcept { return find_item(items_, name) != items_.end(); }

std::vector<std::string> Batch::names() const {
  std::vector<std::string> names;
  names.reserve(items_.size());
  for (const auto& item : items_) names.push_back(item.first);
  return names;
}

std::int64_t Batch::size() const {
  if (items_.empty()) return texts_.empty() ? 0 : std::ssize(texts_.front().second);
  const auto& [name, first] = items_.front();
  if (!first.defined() || first.dim() == 0) return 0;
  const auto offsets = find_item(items_, name + "_offsets");
  return offsets == items_.end() ? first.size(0) : offsets->second.size(0) - 1;
}

Batch Batch::to(at::Device device, bool non_blocking) const {
  Batch moved = *this;
  for (auto& [name, tensor] : moved.items_) {
    if (tensor.defined()) tensor = tensor.to(device, non_blocking);
  }
  return moved;
}

Batch Batch::pin_memory() const {
  Batch pinned = *this;
  for (auto& [name, tensor] : pinned.items_) {
    if (tensor.defined() && tensor.is_cpu()) tensor = tensor.pin_memory();
  }
  return pinned;
}

at::Tensor Batch::valid_mask() const {
  at::Tensor mask = at::ones({size()}, at::kBool);
  auto* row = mask.mutable_data_ptr<bool>();
  std::copy_n(valid.begin(), std::min(valid.size(), static_cast<std::size_t>(size())), row);
  return mask;
}

}  // namespace lockstep

#include "models/compiled/aten_graph.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "models/compiled/step_description.hpp"

namespace lockstep::models::compiled {

/// An argument of a call: a constant, a slot, or a list of slots.
struct AtenGraph::Argument {
  enum class Kind { constant, tensor, tensors, optional_tensors };
  Kind kind;
  c10::IValue constant;
  std::vector<std::size_t> slots;

  static Argument from(const nlohmann::json& value, const c10::Argument& declared);
  c10::IValue value(const std::vector<at::Tensor>& slots_of_run) const;
};

namespace {

using c10::IValue;
using nlohmann::json;
using Slots = std::vector<at::Tensor>;

constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);

std::size_t slot_of(const json& value) {
  return value.is_null() ? kNoSlot : value.at("slot").get<std::size_t>();
}

/// Numbers of c10's enumerations, which boxed calls take.
std::int64_t number_of(const std::string& name) {
  static const std::map<std::string, std::int64_t> numbers = {
      {"strided", static_cast<std::int64_t>(c10::Layout::Strided)},
      {"contiguous_format", static_cast<std::int64_t>(c10::MemoryFormat::Contiguous)},
      {"preserve_format", static_cast<std::int64_t>(c10::MemoryFormat::Preserve)},
      {"channels_last", static_cast<std::int64_t>(c10::MemoryFormat::ChannelsLast)},
      {"channels_last_3d", static_cast<std::int64_t>(c10::MemoryFormat::ChannelsLast3d)}};
  const auto found = numbers.find(name);
  if (found == numbers.end()) throw DataError("unknown layout or memory format '" + name + "'");
  return found->second;
}

double real_of(const json& value) {
  if (!value.is_object()) return value.get<double>();
  return std::strtod(value.at("float").get_ref<const std::string&>().c_str(), nullptr);
}

IValue object_of(const json& value) {
  if (value.contains("float")) return real_of(value);
  if (value.contains("dtype")) return static_cast<std::int64_t>(dtype_named(value.at("dtype")));
  if (value.contains("enum")) return number_of(value.at("enum"));
  if (value.contains("device")) return at::Device(value.at("device").get<std::string>());
  throw DataError("an argument is of an unknown kind");
}

IValue scalar_of(const json& value, c10::TypeKind kind) {
  if (kind == c10::TypeKind::FloatType) return real_of(value);
  if (value.is_object()) return object_of(value);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::int64_t>();
}

template <class Number>
IValue list_of(const json& values, Number (*number)(const json&)) {
  c10::List<Number> list;
  for (const auto& value : values) list.push_back(number(value));
  return list;
}

IValue constants_of(const json& values, c10::TypeKind kind) {
  if (kind == c10::TypeKind::FloatType) return list_of<double>(values, real_of);
  if (kind == c10::TypeKind::BoolType)
    return list_of<bool>(values, [](const json& value) { return value.get<bool>(); });
  return list_of<std::int64_t>(values, [](const json& value) { return value.get<std::int64_t>(); });
}

std::vector<std::size_t> slots_of(const json& values) {
  std::vector<std::size_t> slots;
  for (const auto& value : values) slots.push_back(slot_of(value));
  return slots;
}

at::Tensor constant_of(const json& value) {
  const Layout layout{value.at("shape").get<std::vector<std::int64_t>>(),
                      value.at("stride").get<std::vector<std::int64_t>>(), dtype_named(value.at("dtype"))};
  at::Tensor tensor = at::empty_strided(layout.sizes, layout.strides, layout.dtype);
  std::vector<double> real;
  if (c10::isFloatingType(layout.dtype)) {
    for (const auto& number : value.at("values")) real.push_back(real_of(number));
    return tensor.copy_(at::tensor(real, at::kDouble).reshape(layout.sizes));
  }
  const auto whole = value.at("values").get<std::vector<std::int64_t>>();
  return tensor.copy_(at::tensor(whole, at::kLong).reshape(layout.sizes));
}

}  // namespace

AtenGraph::Argument AtenGraph::Argument::from(const json& value, const c10::Argument& declared) {
  if (value.is_object() && value.contains("default"))
    return {Kind::constant, declared.default_value().value(), {}};
  if (value.is_null()) return {Kind::constant, {}, {}};
  c10::TypePtr type = declared.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (value.is_object() && value.contains("slot")) return {Kind::tensor, {}, {slot_of(value)}};
  if (type->kind() == c10::TypeKind::TensorType) {
    const at::Scalar number = scalar_of(value, c10::TypeKind::NumberType).toScalar();
    return {Kind::constant, at::native::wrapped_scalar_tensor(number), {}};
  }
  const auto list = type->cast<c10::ListType>();
  if (!list) return {Kind::constant, scalar_of(value, type->kind()), {}};
  const auto element = list->getElementType()->kind();
  if (element == c10::TypeKind::TensorType) return {Kind::tensors, {}, slots_of(value)};
  if (element == c10::TypeKind::OptionalType) return {Kind::optional_tensors, {}, slots_of(value)};
  return {Kind::constant, constants_of(value.is_array() ? value : json::array({value}), element), {}};
}

IValue AtenGraph::Argument::value(const Slots& slots_of_run) const {
  if (kind == Kind::constant) return constant;
  if (kind == Kind::tensor) return slots_of_run[slots.front()];
  if (kind == Kind::tensors) {
    c10::List<at::Tensor> list;
    for (const auto slot : slots) list.push_back(slots_of_run[slot]);
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const auto slot : slots)
    list.push_back(slot == kNoSlot ? std::nullopt : std::optional(slots_of_run[slot]));
  return list;
}

struct AtenGraph::Call {
  c10::OperatorHandle operation;
  std::vector<Argument> arguments;
  /// Of the first result.
  std::size_t slot;
  /// Slots of values that no later call needs.
  std::vector<std::size_t> dropped;

  static Call from(const json& value);
  void store(const IValue& result, std::size_t& next, Slots& slots) const;
};

AtenGraph::Call AtenGraph::Call::from(const json& value) {
  const std::string name = value.at("name"), overload = value.at("overload");
  const auto operation = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!operation) throw DataError(fmt::format("LibTorch has no operation {}.{}", name, overload));
  Call call{*operation, {}, value.at("slot").get<std::size_t>(), {}};
  const auto& declared = operation->schema().arguments();
  const json& given = value.at("arguments");
  if (given.size() != declared.size())
    throw DataError(fmt::format("{} has {} arguments, not {}", name, declared.size(), given.size()));
  for (std::size_t i = 0; i < declared.size(); ++i)
    call.arguments.push_back(Argument::from(given[i], declared[i]));
  return call;
}

void AtenGraph::Call::store(const IValue& result, std::size_t& next, Slots& slots) const {
  if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) slots.at(next++) = tensor;
  } else {
    slots.at(next++) = result.isTensor() ? result.toTensor() : at::Tensor();
  }
}

AtenGraph::AtenGraph(const json& graph, std::size_t arguments)
    : slots_(graph.at("slots")), results_(graph.at("results").get<std::vector<std::size_t>>()) {
  for (const auto& value : graph.at("constants"))
    constants_.push_back({value.at("slot"), constant_of(value)});
  for (const auto& value : graph.at("calls")) calls_.push_back(Call::from(value));
  const auto check = [this](std::size_t slot, std::size_t known) {
    if (slot >= slots_ || slot >= known) throw DataError(fmt::format("slot {} has no value", slot));
  };
  if (arguments > slots_) throw DataError("more arguments than slots");
  std::vector<std::size_t> last_use(slots_, kNoSlot);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    for (const auto& argument : calls_[i].arguments) {
      for (const auto slot : argument.slots) {
        if (slot == kNoSlot) continue;
        check(slot, calls_[i].slot);
        last_use[slot] = i;
      }
    }
  }
  for (const auto& constant : constants_) check(constant.slot, slots_);
  for (const auto slot : results_) {
    check(slot, slots_);
    last_use[slot] = kNoSlot;
  }
  for (std::size_t slot = 0; slot < slots_; ++slot)
    if (last_use[slot] != kNoSlot) calls_[last_use[slot]].dropped.push_back(slot);
}

AtenGraph::~AtenGraph() = default;
AtenGraph::AtenGraph(AtenGraph&&) noexcept = default;

std::vector<at::Tensor> AtenGraph::run(const std::vector<at::Tensor>& arguments) const {
  Slots slots = arguments;
  slots.resize(slots_);
  for (const auto& constant : constants_) slots[constant.slot] = constant.value;
  torch::jit::Stack stack;
  for (const auto& call : calls_) {
    stack.clear();
    for (const auto& argument : call.arguments) stack.push_back(argument.value(slots));
    call.operation.callBoxed(stack);
    std::size_t next = call.slot;
    for (const auto& result : stack) call.store(result, next, slots);
    for (const auto slot : call.dropped) slots[slot].reset();
  }
  std::vector<at::Tensor> results;
  results.reserve(results_.size());
  for (const auto slot : results_) results.push_back(slots[slot]);
  return results;
}

}  // namespace lockstep::models::compiled

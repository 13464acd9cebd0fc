#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// A parameter or a buffer with its dotted name ("layer1.0.weight").
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

namespace parallel {

/// The module behind a holder or a pointer, or the object itself. Distinguished by their members, so that
/// this header needs neither torch/nn nor torch/script: works for `torch::nn` holders, `std::shared_ptr`s of
/// modules and `torch::jit::Module`.
template <class Module>
decltype(auto) module_of(Module& module) {
  if constexpr (requires { module.named_parameters(); }) {
    return (module);
  } else {
    return (*module);
  }
}

/// What module_of() accepts.
template <class Object>
concept ModuleLike = requires(Object& object) {
  object.named_parameters();
}
|| requires(Object& object) { object->named_parameters(); };

/// One entry of `torch::OrderedDict` (key, value) or of `torch::jit::named_parameter_list` (name, value).
template <class Entry>
NamedTensor named_tensor(const Entry& entry) {
  if constexpr (requires { entry.key(); }) {
    return {entry.key(), entry.value()};
  } else {
    return {entry.name, entry.value};
  }
}

template <class List>
std::vector<NamedTensor> named_tensors(const List& list) {
  std::vector<NamedTensor> result;
  for (const auto& entry : list) result.push_back(named_tensor(entry));
  return result;
}

/// The module's parameters in the order of their registration; a shared one appears under each of its names.
/// *Local*.
template <class Module>
std::vector<NamedTensor> named_parameters_of(Module& module) {
  return named_tensors(module_of(module).named_parameters());
}

template <class Module>
void append_parameters(Module& module, std::vector<at::Tensor>& parameters) {
  for (auto& entry : module.named_parameters(/*recurse=*/false)) parameters.push_back(entry.value());
  for (const auto& child : module.children()) append_parameters(*child, parameters);
}

/// The same tensors without their names, which take longer to make. In no particular order. *Local*.
template <class Module>
std::vector<at::Tensor> parameters_of(Module& module) {
  std::vector<at::Tensor> parameters;
  auto& object = module_of(module);
  if constexpr (requires {
                  object.named_parameters(false).begin()->value();
                  object.children().front()->children();
                }) {
    append_parameters(object, parameters);
  } else {
    for (auto& entry : named_parameters_of(module)) parameters.push_back(std::move(entry.tensor));
  }
  return parameters;
}

/// The module's buffers in the same way. *Local*.
template <class Module>
std::vector<NamedTensor> named_buffers_of(Module& module) {
  return named_tensors(module_of(module).named_buffers());
}

template <class Module>
void append_state(Module& module, const std::string& prefix, std::vector<NamedTensor>& state) {
  const auto append = [&](std::vector<NamedTensor> tensors) {
    for (auto& entry : tensors) state.push_back({prefix + entry.name, std::move(entry.tensor)});
  };
  if constexpr (requires { module.named_children(); }) {
    append(named_tensors(module.named_parameters(/*recurse=*/false)));
    append(named_tensors(module.named_buffers(/*recurse=*/false)));
    for (const auto& entry : module.named_children()) {
      if constexpr (requires { entry.key(); }) {
        append_state(*entry.value(), prefix + entry.key() + ".", state);
      } else {
        auto child = entry.value;
        append_state(child, prefix + entry.name + ".", state);
      }
    }
  } else {
    append(named_tensors(module.named_parameters()));
    append(named_tensors(module.named_buffers()));
  }
}

/// Parameters and buffers in the order of Python's state_dict: each module's parameters, its buffers, then
/// its children. *Local*.
template <class Module>
std::vector<NamedTensor> named_state_of(Module& module) {
  std::vector<NamedTensor> state;
  append_state(module_of(module), "", state);
  return state;
}

/// The class of an entry of named_modules(), without its namespace: "LayerNorm" for `torch::nn`'s
/// LayerNormImpl, and for TorchScript made from Python's LayerNorm.
template <class Entry>
std::string class_of(const Entry& entry) {
  if constexpr (requires { entry.value()->name(); }) {
    std::string name = entry.value()->name();
    name.erase(0, name.rfind(':') + 1);
    return name.ends_with("Impl") ? name.substr(0, name.size() - 4) : name;
  } else {
    const auto name = entry.value.type()->name();
    return name ? name->name() : std::string();
  }
}

/// The names of the module's descendants of this class. Empty if the module does not expose its children, as
/// after torch.jit.freeze. *Local*.
template <class Module>
std::vector<std::string> children_of_class(Module& module, std::string_view name) {
  std::vector<std::string> names;
  const auto add = [&](const auto& child, const std::string& key) {
    if (class_of(child) == name) names.push_back(key);
  };
  auto& object = module_of(module);
  if constexpr (requires { object.named_modules(std::string(), false); }) {
    for (const auto& child : object.named_modules(std::string(), false)) add(child, child.key());
  } else if constexpr (requires { object.named_modules(); }) {
    for (const auto& child : object.named_modules()) add(child, child.name);
  }
  return names;
}

/// Calls the module's forward with these arguments, or with a list of them for TorchScript. *Local*.
template <class Module, class... Inputs>
auto call(Module& module, Inputs&&... inputs) {
  auto& object = module_of(module);
  if constexpr (requires { object.forward(std::forward<Inputs>(inputs)...); }) {
    return object.forward(std::forward<Inputs>(inputs)...);
  } else {
    return object.forward({std::forward<Inputs>(inputs)...});
  }
}

/// Whether a type holds no tensor: numbers, enumerations, texts.
template <class Value>
constexpr bool holds_no_tensor =
    std::is_arithmetic_v<Value> || std::is_enum_v<Value> || std::is_convertible_v<Value, std::string_view>;

/// Calls `visit(at::Tensor&)` for every defined tensor in the result of a module's forward: a tensor, an
/// optional, a pair or tuple, a range (maps by their values) of these, or a TorchScript value. For a type of
/// your own, define `void visit_tensors_of(MyOutput& output, const auto& visit)` in its namespace, which
/// calls visit for its tensors.
template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit);

/// TorchScript values: tensors, tuples (which keep their field names), lists and dictionaries.
template <class Value, class Visit>
void visit_script_value(Value& value, const Visit& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (tensor.defined()) visit(tensor);
    value = tensor;
  } else if (value.isTuple()) {
    const auto tuple = value.toTuple();
    auto elements = tuple->elements().vec();
    for (auto& element : elements) visit_script_value(element, visit);
    value = std::remove_cvref_t<decltype(*tuple)>::createNamed(std::move(elements), tuple->type());
  } else if (value.isList()) {
    auto list = value.toList();
    for (std::size_t i = 0; i < list.size(); ++i) {
      Value element = list.get(i);
      visit_script_value(element, visit);
      list.set(i, element);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      Value element = entry.value();
      visit_script_value(element, visit);
      entry.setValue(element);
    }
  }
}

template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit) {
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (requires { visit_tensors_of(value, visit); }) {
    visit_tensors_of(value, visit);
  } else if constexpr (requires {
                         value.isTensor();
                         value.isGenericDict();
                       }) {
    visit_script_value(value, visit);
  } else if constexpr (holds_no_tensor<Value>) {
    return;
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) visit_tensors(*value, visit);
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    std::apply([&](auto&... elements) { (visit_tensors(elements, visit), ...); }, value);
  } else if constexpr (requires {
                         typename Value::mapped_type;
                         value.begin()->second;
                       }) {
    for (auto& entry : value) visit_tensors(entry.second, visit);
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                       }) {
    for (auto& element : value) visit_tensors(element, visit);
  } else {
    // Tensors that are not visited would silently not be synchronized.
    static_assert(sizeof(Value) == 0,
                  "forward returns a type whose tensors are not known: write visit_tensors_of for it");
  }
}

}  // namespace parallel
}  // namespace lockstep

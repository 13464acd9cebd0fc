#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A parameter or a buffer under its dotted name ("layer1.0.weight").
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

namespace parallel {

/// The module behind a holder or a pointer, or the object itself. Told apart by what it can do, so that this header needs
/// neither torch/nn nor torch/script: `torch::nn` holders, `std::shared_ptr`s of modules and `torch::jit::Module` fit.
template <class Module>
decltype(auto) module_of(Module& module) {
  if constexpr (requires { module.named_parameters(); }) {
    return (module);
  } else {
    return (*module);
  }
}

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

/// The module's parameters in the order of their registration; a shared one appears under each of its names. *Local*.
template <class Module>
std::vector<NamedTensor> named_parameters_of(Module& module) {
  return named_tensors(module_of(module).named_parameters());
}

/// The module's buffers, likewise. *Local*.
template <class Module>
std::vector<NamedTensor> named_buffers_of(Module& module) {
  return named_tensors(module_of(module).named_buffers());
}

/// Calls `visit(at::Tensor&)` for every tensor in what a module's forward returns: a tensor, an optional, a pair or
/// tuple, a range (maps by their values) of these, or a TorchScript value.
template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit) {
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    visit(value);
  } else if constexpr (requires { value.isTensor(); value.isTuple(); value.toTuple(); }) {
    if (value.isTensor()) {
      at::Tensor tensor = value.toTensor();
      visit(tensor);
      value = tensor;
    } else if (value.isTuple()) {
      const auto tuple = value.toTuple();
      auto elements = tuple->elements().vec();
      for (auto& element : elements) visit_tensors(element, visit);
      value = std::remove_cvref_t<decltype(*tuple)>::create(std::move(elements));
    }
  } else if constexpr (requires { value.has_value(); *value; }) {
    if (value.has_value()) visit_tensors(*value, visit);
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    std::apply([&](auto&... elements) { (visit_tensors(elements, visit), ...); }, value);
  } else if constexpr (requires { typename Value::mapped_type; }) {
    for (auto& entry : value) visit_tensors(entry.second, visit);
  } else if constexpr (requires { value.begin(); value.end(); }) {
    if constexpr (!requires { value.c_str(); }) {
      for (auto& element : value) visit_tensors(element, visit);
    }
  }
}

}  // namespace parallel
}  // namespace lockstep

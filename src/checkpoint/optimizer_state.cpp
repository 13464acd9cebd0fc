#include "lockstep/checkpoint/optimizer_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/optimizer_fields.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using torch::optim::Optimizer;

/// A parameter of an optimizer with its name.
using Parameter = NamedTensor;
using Groups = std::vector<std::vector<Parameter>>;

Groups groups_of(const Optimizer& optimizer, const std::vector<NamedTensor>& names) {
  std::map<const void*, std::string> known;
  for (const auto& entry : names) known.emplace(entry.tensor.unsafeGetTensorImpl(), entry.name);
  Groups groups;
  for (const auto& group : optimizer.param_groups()) {
    auto& parameters = groups.emplace_back();
    for (const auto& tensor : group.params()) {
      const auto found = known.find(tensor.unsafeGetTensorImpl());
      parameters.push_back({found != known.end()
                                ? found->second
                                : fmt::format("group{}.param{}", groups.size() - 1, parameters.size()),
                            tensor});
    }
  }
  return groups;
}

std::vector<std::string> names_of(const std::vector<Parameter>& group) {
  std::vector<std::string> names;
  for (const auto& parameter : group) names.push_back(parameter.name);
  return names;
}

std::string key_of(const Parameter& parameter, const char* field) {
  return fmt::format("state.{}.{}", parameter.name, field);
}

template <class Action>
void require_kind(const Optimizer& optimizer, const Action& action) {
  if (optimizer_fields::with_kind(optimizer, action)) return;
  throw UsageError(
      "the state of this optimizer cannot be written or read: Lockstep knows torch::optim's SGD, Adam, "
      "AdamW, RMSprop and Adagrad, its own fused ones, and no classes derived from them. Register an object "
      "of your own for it with "
      "register_for_checkpointing.");
}

template <class Kind>
json describe(Kind, const Optimizer& optimizer, const Groups& groups) {
  json list = json::array();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const typename Kind::Options&>(optimizer.param_groups()[g].options());
    json entry{{"params", names_of(groups[g])}};
    Kind::visit_options(options, [&](const char* name, const auto& value, auto...) { entry[name] = value; });
    list.push_back(std::move(entry));
  }
  return {{"optimizer", Kind::kName}, {"param_groups", std::move(list)}};
}

at::Tensor as_tensor(const at::Tensor& tensor) { return tensor; }
at::Tensor as_tensor(std::int64_t number) { return at::scalar_tensor(number, at::kLong); }

template <class Kind>
void collect(Kind, const Optimizer& optimizer, const Groups& groups, TensorMap& tensors) {
  for (const auto& group : groups) {
    for (const auto& parameter : group) {
      const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      const auto& state = static_cast<const typename Kind::State&>(*found->second);
      Kind::visit_state(state, [&](const char* field, const auto& value) {
        const at::Tensor tensor = as_tensor(value);
        if (tensor.defined()) tensors.emplace(key_of(parameter, field), tensor);
      });
    }
  }
}

[[noreturn]] void misfit(const std::string& where, const std::string& what) {
  throw DataError(fmt::format("{} does not fit the optimizer: {}", where, what));
}

/// The state of each parameter is found by its name, so their order within a group does not matter.
void check_names(std::vector<std::string> saved, std::vector<std::string> own, std::size_t group,
                 const std::string& where) {
  std::ranges::sort(saved);
  std::ranges::sort(own);
  const auto [in_saved, in_own] = std::ranges::mismatch(saved, own);
  if (in_saved == saved.end() && in_own == own.end()) return;
  const bool only_saved = in_own == own.end() || (in_saved != saved.end() && *in_saved < *in_own);
  misfit(where,
         fmt::format("its group {} has {} parameters, and the program's has {}; '{}' is only in the {}",
                     group, saved.size(), own.size(), only_saved ? *in_saved : *in_own,
                     only_saved ? "checkpoint" : "program"));
}

template <class Kind>
void check_options(Kind, const json& description, const Groups& groups, const std::string& where) {
  const auto kind = description.at("optimizer").get<std::string>();
  if (kind != Kind::kName) misfit(where, "it is of " + kind + ", and the program has " + Kind::kName);
  const auto& list = description.at("param_groups");
  if (list.size() != groups.size()) {
    misfit(where,
           fmt::format("it has {} parameter groups, and the program has {}", list.size(), groups.size()));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    check_names(list[g].at("params").get<std::vector<std::string>>(), names_of(groups[g]), g, where);
  }
}

void check_tensor(const std::string& name, const at::Tensor& found, const Parameter& parameter,
                  bool is_number, const std::string& where) {
  const bool fits = is_number ? found.numel() == 1 && found.scalar_type() == at::kLong
                              : found.sizes() == parameter.tensor.sizes();
  if (!fits) misfit(where, fmt::format("'{}' has another shape or dtype than the parameter needs", name));
}

template <class Kind>
void check_tensors(Kind, const TensorMap& tensors, const Groups& groups, const std::string& where) {
  std::size_t known = 0;
  for (const auto& group : groups) {
    for (const auto& parameter : group) {
      typename Kind::State fields;
      Kind::visit_state(fields, [&](const char* field, auto& value) {
        constexpr bool is_number = std::is_same_v<std::remove_cvref_t<decltype(value)>, std::int64_t>;
        const std::string name = key_of(parameter, field);
        const auto found = tensors.find(name);
        if (found == tensors.end()) return;
        ++known;
        check_tensor(name, found->second, parameter, is_number, where);
      });
    }
  }
  if (known == tensors.size()) return;
  misfit(where,
         fmt::format("{} of its tensors belong to no parameter of the program", tensors.size() - known));
}

/// Reads the options from JSON. A value of the wrong type throws the JSON library's exception.
template <class Kind>
void read_options(Kind, const json& group, typename Kind::Options& options) {
  Kind::visit_options(options, [&](const char* name, auto& value, auto... otherwise) {
    if (sizeof...(otherwise) > 0 && !group.contains(name)) {
      ((value = otherwise), ...);
    } else {
      group.at(name).get_to(value);
    }
  });
}

template <class Kind>
void check_state(Kind kind, const Groups& groups, const OptimizerState& state, const std::string& where) {
  try {
    const json description = json::parse(state.options);
    check_options(kind, description, groups, where);
    for (const auto& group : description.at("param_groups")) {
      typename Kind::Options scratch(0.0);
      read_options(kind, group, scratch);
    }
  } catch (const json::exception& error) {
    misfit(where, error.what());
  }
  check_tensors(kind, state.tensors, groups, where);
}

void take(const at::Tensor& saved, const at::Tensor& parameter, at::Tensor& target) {
  target = at::empty_like(parameter, saved.scalar_type());
  target.copy_(saved);
}

void take(const at::Tensor& saved, const at::Tensor&, std::int64_t& target) {
  target = saved.item<std::int64_t>();
}

/// The state of one parameter; null if it has none.
template <class Kind>
std::unique_ptr<torch::optim::OptimizerParamState> restored(Kind, const TensorMap& tensors,
                                                            const Parameter& parameter) {
  auto state = std::make_unique<typename Kind::State>();
  bool any = false;
  Kind::visit_state(*state, [&](const char* field, auto& value) {
    const auto found = tensors.find(key_of(parameter, field));
    if (found == tensors.end()) return;
    any = true;
    take(found->second, parameter.tensor, value);
  });
  return any ? std::move(state) : nullptr;
}

template <class Kind>
void load(Kind kind, Optimizer& optimizer, const Groups& groups, const OptimizerState& saved) {
  const at::NoGradGuard no_grad;
  const json description = json::parse(saved.options);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& options = static_cast<typename Kind::Options&>(optimizer.param_groups()[g].options());
    read_options(kind, description.at("param_groups")[g], options);
    for (const auto& parameter : groups[g]) {
      auto state = restored(kind, saved.tensors, parameter);
      optimizer.state().erase(parameter.tensor.unsafeGetTensorImpl());
      if (state) optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

/// The device may have left out steps that the host has counted.
void settle(const Optimizer& optimizer) {
  if (const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer)) fused->settle();
}

}  // namespace

OptimizerState optimizer_state(const Optimizer& optimizer, const std::vector<NamedTensor>& names) {
  settle(optimizer);
  OptimizerState result;
  const Groups groups = groups_of(optimizer, names);
  require_kind(optimizer, [&](auto kind) {
    result.options = json_text(describe(kind, optimizer, groups), 2) + "\n";
    collect(kind, optimizer, groups, result.tensors);
  });
  return result;
}

std::vector<NamedTensor> optimizer_parameters(const Optimizer& optimizer,
                                              const std::vector<NamedTensor>& names) {
  std::vector<NamedTensor> all;
  for (const auto& group : groups_of(optimizer, names)) all.insert(all.end(), group.begin(), group.end());
  return all;
}

void check_optimizer_state(const Optimizer& optimizer, const std::vector<NamedTensor>& names,
                           const OptimizerState& state, const std::string& where,
                           const std::vector<NamedTensor>& forms) {
  Groups groups = groups_of(optimizer, names);
  std::map<std::string, at::Tensor> form_by_name;
  for (const auto& entry : forms) form_by_name.emplace(entry.name, entry.tensor);
  for (auto& group : groups) {
    for (auto& parameter : group) {
      if (const auto form = form_by_name.find(parameter.name); form != form_by_name.end())
        parameter.tensor = form->second;
    }
  }
  require_kind(optimizer, [&](auto kind) { check_state(kind, groups, state, where); });
}

void load_optimizer_state(Optimizer& optimizer, const std::vector<NamedTensor>& names,
                          const OptimizerState& state, const std::string& where) {
  check_optimizer_state(optimizer, names, state, where);
  settle(optimizer);
  require_kind(optimizer, [&](auto kind) { load(kind, optimizer, groups_of(optimizer, names), state); });
}

}  // namespace lockstep

#include "train/rules/resumed_arguments.hpp"
#include "core/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using nlohmann::json;

/// The arguments of torch.optim's options; of a tuple, one for each of its values.
const std::map<std::string, std::vector<std::string>>& argument_names() {
  static const std::map<std::string, std::vector<std::string>> names{{"lr", {"learning_rate"}},
                                                                     {"weight_decay", {"weight_decay"}},
                                                                     {"betas", {"adam_beta1", "adam_beta2"}},
                                                                     {"eps", {"adam_epsilon"}},
                                                                     {"momentum", {"sgd_momentum"}}};
  return names;
}

std::string name_of(const std::string& option, std::size_t index) {
  const auto found = argument_names().find(option);
  return found == argument_names().end() || index >= found->second.size() ? option : found->second[index];
}

json arguments_json(const TrainingArguments& args) {
  return json::parse(training_argument_table().to_json_text(args));
}

/// Of several groups that differ, the first counts: an argument has one value.
void compare(std::vector<ChangedArgument>& changes, const std::string& option, const json& given,
             const json& saved) {
  const auto add = [&](std::size_t index, const json& one, const json& other) {
    const std::string name = name_of(option, index);
    const bool known = std::ranges::find(changes, name, &ChangedArgument::name) != changes.end();
    if (one != other && !known) changes.push_back({name, json_text(one), json_text(other)});
  };
  if (!given.is_array() || !saved.is_array() || given.size() != saved.size()) return add(0, given, saved);
  for (std::size_t i = 0; i < given.size(); ++i) add(i, given[i], saved[i]);
}

}  // namespace

std::vector<ChangedArgument> changed_options(const OptimizerNumbers& given, const OptimizerNumbers& saved) {
  std::vector<ChangedArgument> changes;
  for (std::size_t group = 0; group < std::min(given.full_rates.size(), saved.full_rates.size()); ++group)
    compare(changes, "lr", given.full_rates[group], saved.full_rates[group]);
  if (given.description.empty() || saved.description.empty()) return changes;
  const json ours = json::parse(given.description).at("param_groups");
  const json theirs = json::parse(saved.description).at("param_groups");
  for (std::size_t group = 0; group < std::min(ours.size(), theirs.size()); ++group) {
    for (const auto& [option, value] : ours[group].items()) {
      const bool is_compared = option != "params" && option != "lr" && theirs[group].contains(option);
      if (is_compared) compare(changes, option, value, theirs[group][option]);
    }
  }
  return changes;
}

std::optional<ChangedArgument> changed_argument(const std::string& name, const TrainingArguments& given,
                                                const TrainingArguments& saved) {
  const json one = arguments_json(given).at(name);
  const json other = arguments_json(saved).at(name);
  if (one == other) return std::nullopt;
  return ChangedArgument{name, json_text(one), json_text(other)};
}

TrainingArguments arguments_in_effect(const TrainingArguments& given,
                                      const std::vector<ChangedArgument>& changes,
                                      const std::optional<TrainingArguments>& before) {
  const json known = before ? arguments_json(*before) : json::object();
  const json ours = arguments_json(given);
  json values = json::object();
  for (const auto& change : changes) {
    if (!ours.contains(change.name)) continue;
    values[change.name] = known.contains(change.name) ? known[change.name] : json::parse(change.saved);
  }
  return training_argument_table().from_json_text(json_text(values), given);
}

std::string argument_table_text(const std::vector<ChangedArgument>& changes) {
  std::size_t name = std::string_view("argument").size();
  std::size_t given = std::string_view("given").size();
  for (const auto& change : changes) {
    name = std::max(name, change.name.size());
    given = std::max(given, change.given.size());
  }
  std::string text = fmt::format("  {:<{}}  {:<{}}  checkpoint", "argument", name, "given", given);
  for (const auto& change : changes)
    text += fmt::format("\n  {:<{}}  {:<{}}  {}", change.name, name, change.given, given, change.saved);
  return text;
}

}  // namespace lockstep::train

#include "models/lora_targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

std::regex lora_regex(const char* field, const std::string& pattern, const std::string& around = "{}") {
  try {
    return std::regex(fmt::format(fmt::runtime(around), pattern));
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format(
        "LoraConfig: the {} '{}' is no regular expression of ECMAScript ({}): write it as one, or list the "
        "modules",
        field, pattern, error.what()));
  }
}

std::optional<std::regex> whole_name(const char* field, const ModuleNames& modules) {
  if (modules.pattern().empty()) return std::nullopt;
  return lora_regex(field, modules.pattern());
}

/// The value of the first pattern that matches the name or the end of it behind a dot.
template <class Value>
Value of_pattern(const std::vector<std::pair<std::regex, Value>>& patterns, const std::string& module,
                 Value otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (std::regex_match(module, pattern)) return value;
  }
  return otherwise;
}

/// Whether one of the parts of a name, or several that follow each other, are `name`.
bool has_part(const std::string& module, const std::string& name) {
  return ("." + module + ".").find("." + name + ".") != std::string::npos;
}

void check_lora(const LoraConfig& config) {
  const auto fail = [](const char* field, const auto& value, const char* expected) {
    throw UsageError(fmt::format("LoraConfig: {} is {}, expected {}", field, value, expected));
  };
  if (config.r < 1) fail("r", config.r, "at least 1");
  if (!(config.lora_alpha >= 0)) fail("lora_alpha", config.lora_alpha, "0 or more");
  if (!(config.lora_dropout >= 0 && config.lora_dropout <= 1))
    fail("lora_dropout", config.lora_dropout, "a number from 0 to 1");
  if (config.bias != "none" && config.bias != "all" && config.bias != "lora_only")
    fail("bias", "'" + config.bias + "'", "none, all or lora_only");
  for (const auto& [name, rank] : config.rank_pattern)
    if (rank < 1) fail("rank_pattern", fmt::format("{} for '{}'", rank, name), "at least 1");
  if (config.layers_to_transform && !config.target_modules.pattern().empty())
    fail("layers_to_transform", "given", "none beside a regular expression as target_modules");
  if (!config.layers_pattern.empty() && !config.layers_to_transform)
    fail("layers_pattern", "given", "none without layers_to_transform");
}

}  // namespace

bool ends_with_name(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

LoraTargets::LoraTargets(const LoraConfig& config)
    : config_(config),
      target_(whole_name("target_modules", config.target_modules)),
      excluded_(whole_name("exclude_modules", config.exclude_modules)) {
  check_lora(config);
  for (const auto& list : config.layers_pattern)
    layers_.push_back(lora_regex("layers_pattern", list, R"(^(?:.*?\.)?{}\.(\d+)\.)"));
  if (layers_.empty()) layers_.emplace_back(R"(^.*?\.[^.]*\.(\d+)\.)");
  for (const auto& [pattern, rank] : config.rank_pattern)
    ranks_.emplace_back(lora_regex("rank_pattern", pattern, R"((?:.*\.)?(?:{}))"), rank);
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    alphas_.emplace_back(lora_regex("alpha_pattern", pattern, R"((?:.*\.)?(?:{}))"), alpha);
}

bool LoraTargets::exclude(const std::string& module) const {
  if (excluded_ && std::regex_match(module, *excluded_)) return true;
  const auto& names = config_.exclude_modules.names();
  const auto& whole = config_.modules_to_save;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return ends_with_name(module, name); }) ||
         std::any_of(whole.begin(), whole.end(),
                     [&](const std::string& name) { return has_part(module, name); });
}

bool LoraTargets::contain(const std::string& module) const {
  if (exclude(module)) return false;
  if (target_) return std::regex_match(module, *target_);
  const auto& names = config_.target_modules.names();
  if (std::find(names.begin(), names.end(), module) != names.end()) return true;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return module.ends_with("." + name); }) &&
         is_in_layers(module);
}

bool LoraTargets::is_in_layers(const std::string& module) const {
  if (!config_.layers_to_transform) return true;
  const auto& wanted = *config_.layers_to_transform;
  const auto block = block_of(module);
  return block && std::find(wanted.begin(), wanted.end(), *block) != wanted.end();
}

std::optional<std::int64_t> LoraTargets::block_of(const std::string& module) const {
  for (const auto& list : layers_) {
    std::smatch found;
    if (std::regex_search(module, found, list)) return std::stoll(found[1].str());
  }
  return std::nullopt;
}

std::optional<std::string> LoraTargets::find_unused(const std::vector<std::string>& modules) const {
  const auto any_module = [&](const auto& test) { return std::any_of(modules.begin(), modules.end(), test); };
  const auto unknown_in = [&](const char* field, const ModuleNames& list) -> std::optional<std::string> {
    for (const auto& name : list.names()) {
      if (!any_module([&](const std::string& module) { return ends_with_name(module, name); }))
        return fmt::format("{} names '{}', which matches no module of the model", field, name);
    }
    return std::nullopt;
  };
  const auto unknown_of = [&](const char* field, const auto& given,
                              const auto& patterns) -> std::optional<std::string> {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto is_matched = [&, &pattern = patterns[i].first](const std::string& module) {
        return contain(module) && std::regex_match(module, pattern);
      };
      if (!any_module(is_matched))
        return fmt::format("{} names '{}', which matches no layer that gets an adapter", field,
                           given[i].first);
    }
    return std::nullopt;
  };
  if (auto name = unknown_in("target_modules", config_.target_modules)) return name;
  if (auto name = unknown_in("exclude_modules", config_.exclude_modules)) return name;
  if (excluded_ &&
      !any_module([&](const std::string& module) { return std::regex_match(module, *excluded_); }))
    return fmt::format("exclude_modules is '{}', which matches no module of the model",
                       config_.exclude_modules.pattern());
  if (auto name = unknown_of("rank_pattern", config_.rank_pattern, ranks_)) return name;
  if (auto name = unknown_of("alpha_pattern", config_.alpha_pattern, alphas_)) return name;
  for (const auto number : config_.layers_to_transform.value_or(std::vector<std::int64_t>())) {
    if (!any_module([&](const std::string& module) { return contain(module) && block_of(module) == number; }))
      return fmt::format("layers_to_transform names {}, and no block of this number gets an adapter", number);
  }
  return std::nullopt;
}

std::int64_t LoraTargets::rank_of(const std::string& module) const {
  return of_pattern(ranks_, module, config_.r);
}

double LoraTargets::scaling_of(const std::string& module) const {
  const auto rank = static_cast<double>(rank_of(module));
  return of_pattern(alphas_, module, config_.lora_alpha) / (config_.use_rslora ? std::sqrt(rank) : rank);
}

}  // namespace lockstep::models

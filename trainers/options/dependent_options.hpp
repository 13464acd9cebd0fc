#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"

/// Code shared by all programs.
namespace program_options {

/// An option that has an effect only together with others.
struct DependentOption {
  /// "lora-alpha"
  const char* name;
  bool has_effect;
  /// When it has, and what to do: "with --lora-r: give both, or neither"
  const char* when;
  /// If this option is given too, on the command line or in a configuration file, with any value, then that
  /// says itself that the other one does not count.
  const char* decided_by = nullptr;
};

/// Those of the training arguments.
inline std::vector<DependentOption> dependent_arguments(const lockstep::TrainingArguments& args) {
  using lockstep::IntervalStrategy;
  using lockstep::SaveStrategy;
  const bool evaluates_by_steps = args.eval_strategy == IntervalStrategy::steps;
  const bool logs_by_steps = args.logging_strategy == IntervalStrategy::steps;
  const bool saves = args.save_strategy != SaveStrategy::no;
  const bool is_adam = args.optim.starts_with("adam");
  const bool sorts = lockstep::option_word(args.train_sampling_strategy) == "group_by_length";
  constexpr const char* kSave = "save-strategy";
  constexpr const char* kSaving = "with a --save-strategy other than no";
  return {
      {"eval-steps", evaluates_by_steps, "with --eval-strategy steps: give both, or neither",
       "eval-strategy"},
      {"save-steps", args.save_strategy == SaveStrategy::steps, "with --save-strategy steps", kSave},
      {"logging-steps", logs_by_steps || (evaluates_by_steps && !args.eval_steps),
       "with --logging-strategy steps", "logging-strategy"},
      {"save-total-limit", saves, kSaving, kSave},
      {"save-only-model", saves, kSaving, kSave},
      {"async-save", saves, kSaving, kSave},
      {"greater-is-better", lockstep::best_metric_name(args).has_value(),
       "with --metric-for-best-model: give both, or neither"},
      {"warmup-steps", args.lr_scheduler_type != "constant",
       "with another --lr-scheduler-type than constant: constant_with_warmup has one"},
      {"sgd-momentum", args.optim == "sgd", "with --optim sgd: give both, or neither"},
      {"adam-beta1", is_adam, "with --optim adam or adamw_torch"},
      {"adam-beta2", is_adam, "with --optim adam or adamw_torch"},
      {"fsdp-config", !args.fsdp.empty(), "with --fsdp: give both, or neither"},
      {"length-column-name", sorts, "with --train-sampling-strategy group_by_length: give both, or neither"},
  };
}

/// What the configuration file says; an empty object without one. A pipe was emptied when it was parsed, and
/// is not read again: of its keys those count whose values are not the defaults.
template <class Options>
nlohmann::json content_of_config(const Options& options) {
  nlohmann::json content = nlohmann::json::object();
  if constexpr (requires { options.config; }) {
    if (std::filesystem::is_regular_file(options.config)) {
      std::ifstream file(options.config, std::ios::binary);
      content = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    }
  }
  return content;
}

/// Throws UsageError for the first of `dependent` that has no effect, although the command line sets it, or a
/// configuration file to another value than its default.
template <class Options>
void check_dependent_options(const lockstep::OptionTable<Options>& table,
                             const typename lockstep::OptionTable<Options>::Parsed& parsed,
                             const std::vector<DependentOption>& dependent) {
  nlohmann::json now, before;
  table.to_json(now, parsed.options);
  table.to_json(before, Options());
  const nlohmann::json config = content_of_config(parsed.options);
  const auto key_of = [](std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  };
  const auto is_set = [&](const char* name) {
    return parsed.was_given(name) || now.at(key_of(name)) != before.at(key_of(name));
  };
  const auto is_in_config = [&](const char* name) {
    return config.contains(name) || config.contains(key_of(name));
  };
  for (const auto& option : dependent) {
    const bool is_decided =
        option.decided_by != nullptr && (is_set(option.decided_by) || is_in_config(option.decided_by));
    if (option.has_effect || is_decided || !is_set(option.name)) continue;
    throw lockstep::UsageError(fmt::format("--{} has an effect only {}.", option.name, option.when));
  }
}

}  // namespace program_options

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/training_arguments.hpp"

namespace lockstep::train {

// What a checkpoint decides although the arguments of a resumed run say something else. All are *Local*.

/// A number that differs, by the name of its argument, or of the optimizer's option if it has none. The
/// values are JSON.
struct ChangedArgument {
  std::string name;
  std::string given;
  std::string saved;
};

/// An optimizer's numbers: its description (OptimizerState::options), and the full learning rates by group,
/// which a schedule scales. No rates: they are not compared.
struct OptimizerNumbers {
  std::string description;
  std::vector<double> full_rates;
};

/// The differences between the numbers of the same optimizer, by group; nothing without a description.
std::vector<ChangedArgument> changed_options(const OptimizerNumbers& given, const OptimizerNumbers& saved);

/// The same for arguments of that name, which must exist; null if they are equal.
std::optional<ChangedArgument> changed_argument(const std::string& name, const TrainingArguments& given,
                                                const TrainingArguments& saved);

/// The arguments with those values of the checkpoint that are in effect: of `before`, its own arguments, if
/// they are known, otherwise the optimizer's.
TrainingArguments arguments_in_effect(const TrainingArguments& given,
                                      const std::vector<ChangedArgument>& changes,
                                      const std::optional<TrainingArguments>& before);

/// A table with a line for each, under a heading; every line begins with two spaces.
std::string argument_table_text(const std::vector<ChangedArgument>& changes);

}  // namespace lockstep::train

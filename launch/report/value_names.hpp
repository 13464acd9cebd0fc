#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// What a logged value is, by its name in trainer_state.json.
enum class ValueKind {
  loss,
  evaluation_loss,
  learning_rate,
  gradient_norm,
  evaluation,
  memory,
  speed,
  summary,
  other
};

/// `summary`: numbers of a whole training or evaluation, such as train_runtime and eval_samples_per_second,
/// and those of a test; they have a table. *Local*.
ValueKind kind_of_value(std::string_view name);

/// A title for people: "Evaluation accuracy" for "eval_accuracy". *Local*.
std::string title_of_value(const std::string& name);

/// The unit of the value; empty for plain numbers. *Local*.
std::string unit_of_value(std::string_view name);

}  // namespace lockstep::launch

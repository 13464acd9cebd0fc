#include "lockstep/train/trainer_state.hpp"

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "train/rules/python_json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json optional_json(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Value>
void read_optional(const Json& document, const char* key, std::optional<Value>& value) {
  const auto found = document.find(key);
  if (found == document.end() || found->is_null()) return value.reset();
  value = found->get<Value>();
}

Json entry_json(const LogEntry& entry) {
  Json result = Json::object();
  for (const auto& [name, value] : entry.values) result[name] = value;
  result["step"] = entry.step;
  return result;
}

LogEntry entry_from(const Json& document) {
  LogEntry entry;
  for (const auto& [name, value] : document.items()) {
    if (name == "step") {
      entry.step = value.get<std::int64_t>();
    } else if (value.is_number()) {
      entry.values.emplace_back(name, value.get<double>());
    }
  }
  return entry;
}

/// transformers rejects unknown keys, but keeps the state of any callback.
constexpr const char* kOwn = "LockstepTrainer";

Json unfinished_json(const TrainerState& state) {
  const TrainerControl& control = state.unfinished;
  return {{"should_epoch_stop", control.should_epoch_stop},
          {"should_evaluate", control.should_evaluate},
          {"should_log", control.should_log},
          {"should_save", control.should_save},
          {"should_training_stop", control.should_training_stop},
          {"step", state.unfinished_step}};
}

Json own_json(const TrainerState& state) {
  return {{"args", Json::object()},
          {"attributes",
           {{"grad_norm", optional_json(state.grad_norm)},
            {"learning_rate", state.learning_rate},
            {"num_samples_seen", state.num_samples_seen},
            {"step_offset", state.step_offset},
            {"total_batch_size", state.total_batch_size},
            {"total_loss", state.total_loss},
            {"train_seconds", state.train_seconds},
            {"unfinished", unfinished_json(state)},
            {"unlogged_loss", state.unlogged_loss},
            {"unlogged_steps", state.unlogged_steps}}}};
}

Json callback_json(const std::string& name, const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError("the callback '" + name + "': its state_dict() must be JSON: " + error.what());
  }
}

Json callbacks_json(const TrainerState& state) {
  Json result = Json::object();
  for (const auto& [name, text] : state.stateful_callbacks) result[name] = callback_json(name, text);
  result[kOwn] = own_json(state);
  return result;
}

Json state_json(const TrainerState& state) {
  Json history = Json::array();
  for (const auto& entry : state.log_history) history.push_back(entry_json(entry));
  return {{"best_global_step", optional_json(state.best_global_step)},
          {"best_metric", optional_json(state.best_metric)},
          {"best_model_checkpoint", optional_json(state.best_model_checkpoint)},
          {"epoch", state.epoch},
          {"eval_steps", state.eval_steps},
          {"global_step", state.global_step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", state.is_local_process_zero},
          {"is_world_process_zero", state.is_world_process_zero},
          {"log_history", history},
          {"logging_steps", state.logging_steps},
          {"max_steps", state.max_steps},
          {"num_input_tokens_seen", 0},
          {"num_train_epochs", state.num_train_epochs},
          {"save_steps", state.save_steps},
          {"stateful_callbacks", callbacks_json(state)},
          {"total_flos", state.total_flos},
          {"train_batch_size", state.train_batch_size},
          {"trial_name", nullptr},
          {"trial_params", nullptr}};
}

void read_own(const Json& own, TrainerState& state) {
  state.total_batch_size = own.at("total_batch_size");
  state.total_loss = own.at("total_loss");
  state.unlogged_loss = own.at("unlogged_loss");
  state.unlogged_steps = own.at("unlogged_steps");
  // Missing in older checkpoints.
  state.train_seconds = own.value("train_seconds", 0.0);
  state.num_samples_seen = own.value("num_samples_seen", std::int64_t{0});
  state.step_offset = own.value("step_offset", std::int64_t{0});
  state.learning_rate = own.value("learning_rate", 0.0);
  read_optional(own, "grad_norm", state.grad_norm);
  const Json unfinished = own.value("unfinished", Json::object());
  state.unfinished.should_log = unfinished.value("should_log", false);
  state.unfinished.should_evaluate = unfinished.value("should_evaluate", false);
  state.unfinished.should_save = unfinished.value("should_save", false);
  state.unfinished.should_training_stop = unfinished.value("should_training_stop", false);
  state.unfinished.should_epoch_stop = unfinished.value("should_epoch_stop", false);
  state.unfinished_step = unfinished.value("step", false);
}

TrainerState state_from(const Json& document) {
  TrainerState state;
  state.epoch = document.at("epoch");
  state.global_step = document.at("global_step");
  state.max_steps = document.at("max_steps");
  state.num_train_epochs = document.at("num_train_epochs");
  state.logging_steps = document.at("logging_steps");
  state.eval_steps = document.value("eval_steps", std::int64_t{0});
  state.save_steps = document.at("save_steps");
  state.train_batch_size = document.value("train_batch_size", std::int64_t{0});
  state.total_flos = document.value("total_flos", 0.0);
  read_optional(document, "best_metric", state.best_metric);
  read_optional(document, "best_global_step", state.best_global_step);
  read_optional(document, "best_model_checkpoint", state.best_model_checkpoint);
  for (const auto& entry : document.at("log_history")) state.log_history.push_back(entry_from(entry));
  for (const auto& [name, value] : document.at("stateful_callbacks").items()) {
    if (name == kOwn) {
      read_own(value.at("attributes"), state);
    } else {
      state.stateful_callbacks[name] = json_text(value);
    }
  }
  return state;
}

}  // namespace

std::optional<double> LogEntry::find(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string trainer_state_text(const TrainerState& state) { return python_json_text(state_json(state)); }

TrainerState trainer_state_from(const std::string& text, const std::string& file) {
  try {
    return state_from(parse_python_json(text));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("'" + file + "' is not a trainer's state: " + error.what());
  }
}

}  // namespace lockstep

#include "train/trainer/callback_states.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {

std::string state_of(const std::vector<TrainerCallback*>& callbacks) {
  if (callbacks.size() == 1) return callbacks.front()->state_dict();
  std::vector<std::string> states;
  for (const auto* callback : callbacks) states.push_back(callback->state_dict());
  return fmt::format("[{}]", fmt::join(states, ", "));
}

void load_states(const std::string& name, const std::vector<TrainerCallback*>& callbacks,
                 const std::string& text) {
  if (callbacks.size() == 1) return callbacks.front()->load_state_dict(text);
  const auto states = nlohmann::json::parse(text);
  if (!states.is_array() || states.size() != callbacks.size()) {
    throw DataError(
        fmt::format("the checkpoint does not have a list of {} states for the callbacks '{}': add as many as "
                    "when it was written",
                    callbacks.size(), name));
  }
  for (std::size_t i = 0; i < callbacks.size(); ++i) callbacks[i]->load_state_dict(json_text(states[i]));
}

}  // namespace lockstep::train

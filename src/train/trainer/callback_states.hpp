#pragma once

#include <string>
#include <vector>

#include "lockstep/train/trainer_callback.hpp"

namespace lockstep::train {

/// The state of the callbacks of one name as JSON: as transformers, that of the only one, or a list.
std::string state_of(const std::vector<TrainerCallback*>& callbacks);
/// Takes such a state. `name`: for the DataError that is thrown if there were more or fewer of them.
void load_states(const std::string& name, const std::vector<TrainerCallback*>& callbacks,
                 const std::string& text);

}  // namespace lockstep::train

#pragma once

#include <string>
#include <vector>

#include "lockstep/optim/schedules.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

// lr_scheduler_kwargs, with the keys that transformers has for each schedule. All functions are *Local* and
// throw UsageError for a key that the schedule does not take, listing those that it takes, and for a value of
// the wrong type.

/// What lr_scheduler_type can be, in the order of the help.
std::vector<std::string> schedule_types();

/// Whether the arguments' schedule falls towards the last step of the training: the number of steps must be
/// known in advance.
bool has_last_step(const TrainingArguments& args);

/// The schedule of the arguments, without the numbers of warm-up and training steps.
optim::ScheduleOptions schedule_options(const TrainingArguments& args);

/// The same for reduce_lr_on_plateau.
optim::PlateauOptions plateau_options(const TrainingArguments& args);

/// Also throws for numbers out of range.
void check_schedule_kwargs(const TrainingArguments& args);

}  // namespace lockstep

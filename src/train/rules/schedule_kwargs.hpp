#pragma once

#include "lockstep/optim/schedules.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

// lr_scheduler_kwargs, whose keys are those of transformers for each schedule. All are *Local* and throw
// UsageError for a key that the schedule does not take, naming those that it takes, and for a value of
// another kind.

/// The schedule of the arguments, without the steps of warm-up and training.
optim::ScheduleOptions schedule_options(const TrainingArguments& args);

/// The same for reduce_lr_on_plateau.
optim::PlateauOptions plateau_options(const TrainingArguments& args);

/// Throws for numbers out of range, too.
void check_schedule_kwargs(const TrainingArguments& args);

}  // namespace lockstep

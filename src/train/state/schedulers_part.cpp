#include "train/state/schedulers_part.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

std::string scheduler_file(std::size_t index) { return numbered_file("scheduler", index, ".json"); }

}  // namespace

void SchedulersPart::take_local() {
  for (const auto* scheduler : schedulers_) states_.push_back(scheduler->state_dict());
}

void SchedulersPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < states_.size(); ++i)
    files.add_json(scheduler_file(i), nlohmann::json::parse(states_[i]));
}

void SchedulersPart::read(const Checkpoint& checkpoint) {
  check_file_count(checkpoint.path, "schedulers", schedulers_.size(), scheduler_file);
  for (std::size_t i = 0; i < schedulers_.size(); ++i)
    states_.push_back(read_json_text(checkpoint.path / scheduler_file(i)));
}

void SchedulersPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  states_.resize(schedulers_.size());
  for (std::size_t i = 0; i < schedulers_.size(); ++i)
    schedulers_[i]->load_state_dict(accelerator.process_group().broadcast_object(states_[i], root()));
}

}  // namespace lockstep::train

#include "train/state/random_states_part.hpp"

#include <fmt/core.h>

namespace lockstep::train {
namespace {

std::string random_file(std::size_t rank) { return fmt::format("random_states_{}.safetensors", rank); }

}  // namespace

void RandomStatesPart::gather(const GatherOptions& options) { states_ = gather_random_states(options.group); }

void RandomStatesPart::write(CheckpointFiles& files) const {
  for (std::size_t rank = 0; rank < states_.size(); ++rank) {
    files.add(random_file(rank), [&state = states_[rank]](const std::filesystem::path& path) {
      return write_random_state(path, state);
    });
  }
}

void RandomStatesPart::read(const Checkpoint& checkpoint) {
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(checkpoint.info.world_size); ++rank)
    states_.push_back(read_random_state(checkpoint.path / random_file(rank)));
}

/// Those of a lost rank are lost with it: where ranks are replaced, each step draws from a seed of its own
/// (train/elastic/step_seed.hpp).
void RandomStatesPart::apply(const Accelerator& accelerator, const CheckpointInfo& info) {
  if (is_given()) return;
  if (info.world_size == accelerator.num_processes()) {
    scatter_random_states(accelerator.process_group(), states_);
  } else {
    begin_new_random_states(accelerator.process_group(), states_);
  }
}

}  // namespace lockstep::train

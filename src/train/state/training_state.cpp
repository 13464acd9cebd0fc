#include "train/state/training_state.hpp"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <functional>

#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "train/state/checkpoint_files.hpp"
#include "train/state/host_copies.hpp"

namespace lockstep::train {

namespace fs = std::filesystem;

void TrainingState::save(const Accelerator& accelerator, const fs::path& path, CheckpointInfo info,
                         const SaveStateOptions& options, CheckpointWriter& writer) const {
  const bool may_write = options.save_on_each_node || accelerator.is_main_process();
  const auto queue = std::make_shared<GatheredTensors>();
  // An asynchronous save gathers now: what it writes must not change during training.
  for (const auto& part : *parts_)
    part->gather({.group = accelerator.process_group(),
                  .queue = *queue,
                  .at_once = options.asynchronous,
                  .writes = may_write,
                  .trained_only = options.trained_only});
  info.world_size = accelerator.num_processes();
  info.lockstep_version = version();
  info.libtorch_version = TORCH_VERSION;
  for (const auto& part : *parts_) part->describe(info);
  // One thread if training continues meanwhile; otherwise more cores are free.
  const int threads = options.asynchronous ? 1 : 2;
  const auto write = [parts = parts_, queue, path, info, threads, add = options.add_files,
                      done = options.when_written] {
    write_checkpoint(path, info, [&](const fs::path& folder) {
      CheckpointFiles files(folder, *queue);
      for (const auto& part : *parts) part->write(files);
      auto digests = files.write(threads);
      if (add) add(folder);
      return digests;
    });
    if (done) done();
  };
  const auto save = [&] {
    queue->during([&] {
      writer.wait();
      for (const auto& part : *parts_) part->take_local();
      if (!options.asynchronous) return write();
      HostCopies copies;
      const at::NoGradGuard no_grad;
      for (const auto& part : *parts_) part->detach(copies);
      copies.wait();
      writer.start(write);
    });
  };
  const bool writes = options.save_on_each_node ? writes_for_its_node(accelerator, path.parent_path())
                                                : accelerator.is_main_process();
  if (!writes) queue->drop_rest();
  if (!options.save_on_each_node) return accelerator.on_main_process(save);
  run_on_writers(accelerator, writes, save);
}

void TrainingState::load(const Accelerator& accelerator, const Checkpoint& checkpoint) const {
  for (const auto& part : *parts_) part->prepare_reading(accelerator, checkpoint);
  accelerator.on_main_process([&] {
    for (const auto& part : *parts_) part->read(checkpoint);
  });
  for (const auto& part : *parts_) part->apply(accelerator, checkpoint.info);
}

std::string TrainingState::why_not_given() const {
  for (const auto& part : *parts_) {
    if (std::string why = part->why_not_given(); !why.empty()) return why;
  }
  return "";
}

void TrainingState::give(const Accelerator& accelerator, int source) const {
  if (const std::string why = why_not_given(); !why.empty())
    throw UsageError("the state of a rank cannot be given to another one: " + why + ": load a checkpoint");
  const bool gives = accelerator.process_index() == source;
  GatheredTensors queue;
  for (const auto& part : *parts_) {
    part->give_from(source);
    part->gather({.group = accelerator.process_group(),
                  .queue = queue,
                  .at_once = true,
                  .writes = gives,
                  .trained_only = false});
    if (gives) part->take_local();
  }
  CheckpointInfo info;
  info.world_size = accelerator.num_processes();
  for (const auto& part : *parts_) part->apply(accelerator, info);
}

}  // namespace lockstep::train

#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/group_observer.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/train/accelerator.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/preemption_sync.hpp"
#include "train/prepared_objects.hpp"

namespace lockstep {

struct Accelerator::State final : comm::GroupObserver {
  State(const World& the_world, const ProcessGroup& the_group, const AcceleratorOptions& the_options)
      : world(the_world),
        options(the_options),
        group(the_group),
        store(the_group.new_namespace()),
        preemption(the_group) {}

  void release() override { preemption = train::PreemptionSync(group); }
  void reseat() override {
    store = group.new_namespace();
    main_first = local_main_first = 0;
  }

  World world;
  AcceleratorOptions options;
  ProcessGroup group;
  Store store;
  std::int64_t main_first = 0;
  std::int64_t local_main_first = 0;
  train::PreparedObjects prepared;
  train::PreemptionSync preemption;
  bool stop_requested = false;
  /// How often a state was loaded.
  std::uint64_t loads = 0;
  /// Of the state that was loaded last.
  std::uint64_t loaded_step = 0;
  std::optional<std::uint64_t> seed_before_load = {};
  std::uint64_t loaded_seed = 0;  // The seed that the load has left.
  /// See TrainingScope.
  bool is_plain_loop = false;
  std::function<void()> commit_step;
  std::vector<train::ElasticPart*> elastic_parts;
  std::shared_ptr<StateHookHandle::Hooks> save_hooks = std::make_shared<StateHookHandle::Hooks>();
  std::shared_ptr<StateHookHandle::Hooks> load_hooks = std::make_shared<StateHookHandle::Hooks>();
  /// Destroyed first: it may still be writing.
  train::CheckpointWriter writer;
};

}  // namespace lockstep

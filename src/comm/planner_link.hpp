#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "coordination/key_value_store.hpp"
#include "core/elastic/recovery_messages.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// A rank's words with the planner of recoveries, which is in the launcher: see recovery_messages.hpp. Waits
/// until the launcher answers, which it does for as long as it runs; when it ends, so do its ranks. One
/// thread. Throws CommunicationError if the store cannot be reached.
class PlannerLink {
 public:
  /// `store`: the job's (Store::connect). Opens a connection of its own.
  PlannerLink(const Store& store, elastic::RankProcess self);

  const elastic::RankProcess& self() const noexcept { return self_; }

  void report(const elastic::RankReport& report);
  /// A spare's wait for the generation for which it parks.
  elastic::Generation await_call();
  /// What happens in `generation`, for which this rank has reported that it is parked.
  elastic::Decision await_decision(elastic::Generation generation);
  /// True: all ranks have finished `generation`. False: it was revoked, and others need this one.
  bool await_end(elastic::Generation generation);
  /// The same number on all ranks and on those that replace them: rank 0's first.
  std::uint64_t agree_on_seed(std::uint64_t own);

 private:
  std::string await(const std::string& key);

  std::shared_ptr<KeyValueStore> store_;
  elastic::RankProcess self_;
};

/// What LOCKSTEP_REPLACES says about this process.
std::optional<elastic::Replacement> replacement_of_this_process();

/// Tells the planner that this process, which replaces a lost one, has a mistake in its set-up that the next
/// one would repeat. Does nothing in other processes, and if the planner cannot be reached. `store`: the
/// job's.
void report_refusal(const Store& store, int rank, const std::string& why) noexcept;

/// Whether an operation of the group on CPUs has failed on this rank, so that no other one runs. *Local*.
bool has_failed_operation(const ProcessGroup& group);
/// How many operations this rank has begun in the group on CPUs and in all groups made from it. *Local*.
std::uint64_t operations_begun(const ProcessGroup& group);

}  // namespace lockstep::comm

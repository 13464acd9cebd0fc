#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// How far the ranks compare what they are about to do before data moves. All ranks must choose the same.
enum class CollectiveCheckLevel {
  /// Not at all: a mistake ends in wrong numbers, an aborted process or a timeout.
  off,
  /// Every collective of CPU tensors, by operation, number, dtype, elements, reduction and root: a
  /// difference is a CommunicationError on all ranks. Costs nothing where ranks share memory, and elsewhere
  /// one or more small messages, which pass while the operation before is still under way.
  every_call,
  /// Also shapes, labels, the split sizes of an all_to_all, messages, and where the program calls. Slow: a
  /// message to the store and back for each, and each waits for all ranks.
  detail,
};

/// What a process group watches about itself; docs/diagnostics.md tells what comes of it.
struct DiagnosticsOptions {
  /// A rank that waits for others longer than this says so on standard error, with what the others do; and
  /// again each time the wait has doubled. 0: never.
  std::chrono::milliseconds warn_after = std::chrono::seconds(30);

  /// How many operations a rank remembers.
  std::size_t trace_entries = 2000;

  /// Where a rank writes what it remembers, when an operation fails or somebody asks for it. Made when it is
  /// needed. Empty: nowhere.
  std::string trace_dir = {};

  CollectiveCheckLevel check = CollectiveCheckLevel::every_call;

  /// The defaults, changed by LOCKSTEP_WARN_AFTER (seconds), LOCKSTEP_TRACE_DIR, LOCKSTEP_TRACE_ENTRIES or
  /// PyTorch's TORCH_FR_BUFFER_SIZE, and LOCKSTEP_DEBUG (off, info, detail) or PyTorch's
  /// TORCH_DISTRIBUTED_DEBUG. Throws UsageError naming a variable that makes no sense. *Local*.
  static DiagnosticsOptions from_environment(const Environment& environment = process_environment());
};

}  // namespace lockstep

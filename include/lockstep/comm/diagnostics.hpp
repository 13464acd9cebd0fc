#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// How far the ranks verify that they call the same collectives before data moves, as c10d's levels of
/// TORCH_DISTRIBUTED_DEBUG. All ranks must choose the same.
enum class CollectiveCheckLevel {
  /// As `info` where ranks share memory, and not at all on Gloo: a mistake there ends in wrong numbers, an
  /// aborted process or a timeout.
  off,
  /// By operation, number, dtype, elements, reduction and root: every collective of CPU tensors where ranks
  /// share memory, alone or within hosts, because it costs nothing there; on Gloo alone the buckets of
  /// DistributedDataParallel. A difference is a CommunicationError on all ranks.
  info,
  /// Every collective of CPU tensors on every transport, also by shapes, labels, the split sizes of an
  /// all_to_all, messages, and where the program calls. Slow: a message to the store and back for each, and
  /// each waits for all ranks.
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

  CollectiveCheckLevel check = CollectiveCheckLevel::info;

  /// The defaults, changed by LOCKSTEP_WARN_AFTER (seconds), LOCKSTEP_TRACE_DIR, LOCKSTEP_TRACE_ENTRIES or
  /// PyTorch's TORCH_FR_BUFFER_SIZE, and LOCKSTEP_DEBUG (off, info, detail) or PyTorch's
  /// TORCH_DISTRIBUTED_DEBUG. Throws UsageError naming a variable that makes no sense. *Local*.
  static DiagnosticsOptions from_environment(const Environment& environment = process_environment());
};

}  // namespace lockstep

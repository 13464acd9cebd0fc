#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// How thoroughly the ranks verify that they call the same collectives before data is communicated;
/// corresponds to the levels of c10d's TORCH_DISTRIBUTED_DEBUG. Must be the same on all ranks.
enum class CollectiveCheckLevel {
  /// As `info` if ranks share memory; nothing on Gloo, where a mismatch leads to wrong numbers, an aborted
  /// process or a timeout.
  off,
  /// Compares operation, dtype, number of elements, reduction and root, over shared memory also the sequence
  /// number: for every collective of CPU tensors if ranks share memory (on one host or within hosts), where
  /// this costs nothing; on Gloo alone only for the buckets of DistributedDataParallel. A mismatch is a
  /// CommunicationError on all ranks.
  info,
  /// Also compares shapes, labels and the split sizes of an all_to_all, for every collective of CPU tensors
  /// on every transport, and the size and dtype of messages; errors show the caller. Slow: each operation
  /// sends requests to the store, and each collective waits for all ranks.
  detail,
};

/// What a process group monitors and records; see docs/diagnostics.md.
struct DiagnosticsOptions {
  /// A rank that waits for others longer than this reports it on standard error, with what the others do;
  /// again each time the wait has doubled. 0: never.
  std::chrono::milliseconds warn_after = std::chrono::seconds(30);

  /// Number of operations that a rank records.
  std::size_t trace_entries = 2000;

  /// Folder for traces, written when an operation fails, when the group ends, and on request. Created when
  /// needed. Empty: no traces.
  std::string trace_dir = {};

  CollectiveCheckLevel check = CollectiveCheckLevel::info;

  /// The defaults, overridden by LOCKSTEP_WARN_AFTER (seconds), LOCKSTEP_TRACE_DIR, LOCKSTEP_TRACE_ENTRIES or
  /// PyTorch's TORCH_FR_BUFFER_SIZE, and LOCKSTEP_DEBUG (off, info, detail) or PyTorch's
  /// TORCH_DISTRIBUTED_DEBUG. Throws UsageError naming the variable if a value is invalid. *Local*.
  static DiagnosticsOptions from_environment(const Environment& environment = process_environment());
};

}  // namespace lockstep

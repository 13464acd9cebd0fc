#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Which steps are recorded: torch.profiler's `schedule`. The first `skip_first` steps are skipped; then
/// cycles of `wait` steps without profiling, `warmup` steps whose events are discarded, and `active` steps
/// that are recorded.
struct ProfileSchedule {
  std::int64_t skip_first = 0;
  std::int64_t wait = 0;
  std::int64_t warmup = 1;
  std::int64_t active = 3;
  /// Number of cycles; 0: until the profiler ends.
  std::int64_t repeat = 1;
};

/// Accelerate's ProfileKwargs, except what is specific to Python (stacks).
struct ProfileOptions {
  ProfileSchedule schedule_option;
  bool record_shapes = false;
  /// Record allocations too.
  bool profile_memory = false;
  bool with_flops = false;
  /// Folder of the traces; created when the first is written.
  std::filesystem::path output_trace_dir = "profile";
};

/// Records operators, and kernels on CUDA, with LibTorch's profiler (Kineto), and writes one trace per cycle:
/// `<output_trace_dir>/rank_<rank>.<last step>.pt.trace.json`, which Perfetto, chrome://tracing and
/// TensorBoard's plugin read.
///
///     lockstep::Profiler profiler({.schedule_option = {.skip_first = 10}}, accelerator.process_index());
///     for (auto& batch : batches) {
///       ...
///       profiler.step();
///     }
///
/// Create, step and destroy it in the thread that trains: Kineto records the operators of that thread, and
/// what autograd does for it. One profiler per process at a time. *Local*.
class Profiler {
 public:
  /// Starts with step 0. Throws UsageError if the schedule is invalid or another profiler is recording.
  Profiler(ProfileOptions options, int rank);
  /// Writes a cycle in progress. An error is printed as a warning.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends a training step and starts the next. Throws Error if a trace cannot be written.
  void step();
  /// Ends profiling, and writes a cycle in progress. Further steps do nothing.
  void stop();

  /// The traces written so far.
  const std::vector<std::filesystem::path>& traces() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Which steps are recorded: torch.profiler's `schedule`. The first `skip_first` steps are left alone; then
/// cycles of `wait` steps without profiling, `warmup` steps whose events are thrown away, and `active` steps
/// that are kept.
struct ProfileSchedule {
  std::int64_t skip_first = 0;
  std::int64_t wait = 0;
  std::int64_t warmup = 1;
  std::int64_t active = 3;
  /// How many cycles; 0: until the profiler ends.
  std::int64_t repeat = 1;
};

/// Accelerate's ProfileKwargs, as far as C++ has what they name (no Python stacks).
struct ProfileOptions {
  ProfileSchedule schedule_option;
  bool record_shapes = false;
  /// Allocations too.
  bool profile_memory = false;
  bool with_flops = false;
  /// Where the traces go; it is made when the first is written.
  std::filesystem::path output_trace_dir = "profile";
};

/// Records operators, and kernels on CUDA, by LibTorch's own profiler (Kineto), and writes a trace for each
/// cycle:
/// `<output_trace_dir>/rank_<rank>.<last step>.pt.trace.json`, which Perfetto, chrome://tracing and
/// TensorBoard's plugin read.
///
///     lockstep::Profiler profiler({.schedule_option = {.skip_first = 10}}, accelerator.process_index());
///     for (auto& batch : batches) {
///       ...
///       profiler.step();
///     }
///
/// Made, stepped and destroyed by the thread that trains: Kineto records the operators of that thread and
/// what autograd does for it. A process has one profiler at a time. *Local*.
class Profiler {
 public:
  /// Begins with step 0. UsageError for a schedule that records nothing, or where another profiler records.
  Profiler(ProfileOptions options, int rank);
  /// A cycle that is under way is written. An error is printed as a warning.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// A training step has ended, and the next begins. Throws an Error when a trace cannot be written.
  void step();
  /// Ends profiling, and writes the cycle that is under way. Further steps do nothing.
  void stop();

  /// The traces that were written so far.
  const std::vector<std::filesystem::path>& traces() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

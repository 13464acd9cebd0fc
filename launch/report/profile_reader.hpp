#pragma once

#include <filesystem>
#include <vector>

#include "report/run_record.hpp"

namespace lockstep::launch {

/// What a trace of LibTorch's profiler says, of torch.profiler's too.
struct ProfileSummary {
  /// Operators by their own time, the longest first; on a GPU its kernels.
  std::vector<OperatorTime> operators;
  /// Whether these are kernels, copies and fills of a GPU.
  bool is_of_gpu = false;
  /// The steps in it, and their mean length; 0 if it has none.
  double steps = 0;
  double seconds_per_step = 0;
};

/// Reads `rank_<rank>.<step>.pt.trace.json` in memory that grows with its events alone. *Local*. Throws
/// DataError, naming the file, if it is not such a trace, or is larger than 4 GiB.
ProfileSummary read_profile(const std::filesystem::path& path);

}  // namespace lockstep::launch

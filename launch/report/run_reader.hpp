#pragma once

#include <filesystem>

#include "report/run_record.hpp"

namespace lockstep::launch {

/// Reads what is known in a training's output folder, also of a training that is running. What cannot be read
/// is a problem of the record, which names the file. *Local*. Throws UsageError if `folder` is not a folder,
/// DataError, naming what was looked for, if it has no known file or none that can be read.
RunRecord read_run(const std::filesystem::path& folder);

}  // namespace lockstep::launch

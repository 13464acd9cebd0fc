#pragma once

#include <filesystem>
#include <string>

#include "report/run_log.hpp"

namespace lockstep::launch {

/// Read what the trackers "jsonl" and "csv" write (metrics.jsonl, metrics.csv). `source` names the file for
/// the user. Lines that cannot be read are left out and counted; a last line that is still being written is
/// left out. All *Local*. They throw DataError if the file cannot be read at all.

RunLog read_json_lines(const std::filesystem::path& path, const std::string& source);
RunLog read_csv_table(const std::filesystem::path& path, const std::string& source);

}  // namespace lockstep::launch

#include "report/rank_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"
#include "report/lenient_json.hpp"
#include "report/number_words.hpp"
#include "report/run_files.hpp"
#include "report/time_shares.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMostRanks = 1 << 20;

struct RankFile {
  int rank = 0;
  int world_size = 0;
  fs::file_time_type changed;
  json document;
};

std::optional<RankFile> rank_file(const fs::path& path, RunRecord& run) {
  try {
    RankFile file{.rank = 0, .world_size = 0, .changed = {}, .document = read_python_json(path)};
    const auto rank = number_at(file.document, "rank"), size = number_at(file.document, "world_size");
    if (!rank || !size || !(*size >= 1 && *size <= kMostRanks) || !(*rank >= 0 && *rank < *size))
      throw DataError(fmt::format("'{}' is not a rank's record.", path.string()));
    file.rank = static_cast<int>(*rank);
    file.world_size = static_cast<int>(*size);
    std::error_code unknown;
    file.changed = fs::last_write_time(path, unknown);
    return file;
  } catch (const DataError& error) {
    run.problems.emplace_back(error.what());
  }
  return std::nullopt;
}

std::string text_at(const json& document, const char* name) {
  return document.contains(name) && document[name].is_string() ? utf8_text(document[name].get<std::string>())
                                                               : "";
}

void take_host(const json& document, RunRecord& run) {
  const std::string host = text_at(document, "host");
  if (host.empty()) return;
  run.hosts.insert(host);
  const auto hardware = document.find("hardware");
  if (hardware == document.end() || !hardware->is_object()) return;
  auto& facts = run.hardware[host];
  facts.clear();
  for (const char* name : {"system", "CPU", "CPUs", "memory", "GPUs"}) {
    if (const auto value = text_at(*hardware, name); !value.empty()) facts.emplace_back(name, value);
  }
}

void take_time(const RankFile& file, RunRecord& run) {
  const auto total = number_at(file.document, "seconds");
  const auto parts = file.document.find("parts");
  if (!total || !(*total > 0) || parts == file.document.end() || !parts->is_object()) return;
  std::map<std::string, double> seconds;
  for (const auto& [name, value] : parts->items()) {
    const auto number = number_in(value);
    if (number && *number > 0 && *number <= *total) seconds[utf8_text(name)] = *number;
  }
  if (seconds.empty()) return;  // It was killed soon after it began.
  run.spent.push_back(spent_time_of(fmt::format("rank {}", file.rank), *total, seconds));
}

/// Of a rank that was lost while the others went on.
void take_recoveries(const RankFile& file, RunRecord& run) {
  const auto times = file.document.find("recoveries");
  if (times == file.document.end() || !times->is_array()) return;
  for (const auto& entry : *times) {
    const auto time = entry.is_object() ? number_at(entry, "time") : number_in(entry);
    if (!time || !std::isfinite(*time)) continue;
    const double step = number_at(entry, "step").value_or(kUnknown);
    const std::string repeated =
        std::isfinite(step)
            ? fmt::format(", and repeated what they had begun after step {}", count_words(step))
            : "";
    run.events.push_back(
        {RunEvent::Kind::recovery, step, *time,
         fmt::format("rank {} was lost, and replaced; the other ranks went on{}", file.rank, repeated)});
  }
}

}  // namespace

void take_rank_records(const std::vector<fs::path>& paths, RunRecord& run) {
  std::vector<RankFile> files;
  for (const auto& path : paths) {
    if (auto file = rank_file(path, run)) files.push_back(std::move(*file));
  }
  if (files.empty()) return;
  const int world_size = std::ranges::max(files, {}, &RankFile::changed).world_size;
  std::erase_if(files, [&](const RankFile& file) { return file.world_size != world_size; });
  std::ranges::sort(files, {}, &RankFile::rank);
  const bool has_traces = !run.spent.empty();
  for (const auto& file : files) {
    take_host(file.document, run);
    take_recoveries(file, run);
    if (!has_traces) take_time(file, run);
    run.memory.push_back(
        {.rank = file.rank,
         .host_mib = number_at(file.document, "peak_memory_mib").value_or(kUnknown),
         .device_mib = number_at(file.document, "peak_device_memory_mib").value_or(kUnknown)});
  }
  run.world_size = world_size;
  if (const auto text = text_at(files.front().document, "lockstep"); !text.empty())
    run.lockstep_version = text;
  if (const auto text = text_at(files.front().document, "libtorch"); !text.empty())
    run.libtorch_version = text;
  run.sources.push_back(path_within(run.folder, paths.front().parent_path() / "rank-*.json"));
  if (has_traces || run.spent.empty()) return;
  run.spent_note = fmt::format(
      "As {} counted it from the beginning of the training, without what a killed process had not yet "
      "written. "
      "\"{}\" is the time in which a rank waited for others, wherever it did.",
      counted(static_cast<double>(run.spent.size()), "rank"), kCommunication);
}

}  // namespace lockstep::launch

#include "trace/rank_trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string fingerprint_of(const json& entry) {
  std::string fingerprint = entry.at("profiling_name").get<std::string>();
  if (const auto op = entry.value("reduce_op", ""); !op.empty()) fingerprint += " of " + op;
  if (const int peer = entry.value("peer", -1); peer >= 0) fingerprint += fmt::format(" with {}", peer);
  const bool any_size = fingerprint.find("all_to_all") != std::string::npos;
  for (const auto& dtype : entry.at("input_dtypes")) fingerprint += ", " + dtype.get<std::string>();
  return any_size ? fingerprint : fingerprint + " " + json_text(entry.at("input_sizes"));
}

TracedOperation operation_of(const json& entry, std::int64_t offset) {
  TracedOperation result;
  result.group = entry.at("process_group").at(1).get<std::string>();
  result.is_message = entry.value("is_p2p", false);
  result.number = entry.at(result.is_message ? "p2p_seq_id" : "collective_seq_id").get<std::uint64_t>();
  const auto name = entry.at("profiling_name").get<std::string>();
  result.name = name.substr(name.find(':') + 1);
  result.label = entry.value("label", "");
  result.fingerprint = fingerprint_of(entry);
  result.state = entry.at("state").get<std::string>();
  result.begin = entry.at("time_created_ns").get<std::int64_t>() - offset;
  const auto end = entry.find("time_discovered_completed_ns");
  if (end != entry.end() && !end->is_null()) result.end = end->get<std::int64_t>() - offset;
  return result;
}

/// More have no job; a damaged file may say so.
constexpr int kMostRanksOfTrace = 1 << 20;

RankTrace trace_of(const json& file) {
  RankTrace trace;
  trace.run = file.value("run", "");
  trace.rank = file.at("rank").get<int>();
  trace.world_size = file.at("world_size").get<int>();
  if (trace.rank < 0 || trace.rank >= trace.world_size || trace.world_size > kMostRanksOfTrace)
    throw DataError(fmt::format("it says that it is of rank {} of {}.", trace.rank, trace.world_size));
  trace.host = file.at("host").get<std::string>();
  trace.reason = file.at("reason").get<std::string>();
  const auto offset = trace.wall_offset = file.at("wall_offset_ns").get<std::int64_t>();
  for (const auto& entry : file.at("entries")) trace.operations.push_back(operation_of(entry, offset));
  for (const auto& span : file.at("spans")) {
    trace.spans.push_back({span.at("name").get<std::string>(), span.at("thread").get<long>(),
                           span.at("begin_ns").get<std::int64_t>() - offset,
                           span.at("end_ns").get<std::int64_t>() - offset});
  }
  for (const auto& [number, config] : file.at("pg_config").items()) {
    RankTrace::Group& group = trace.groups[config.at("desc").get<std::string>()];
    group.ranks = json::parse(config.at("ranks").get<std::string>()).get<std::vector<int>>();
    const auto last = file.at("pg_status").at(number).at("last_enqueued_collective").get<std::uint64_t>();
    group.last_collective = std::max(group.last_collective, last);
  }
  return trace;
}

RankTrace read_trace(const fs::path& path) {
  std::ifstream file(path);
  try {
    return trace_of(json::parse(file));
  } catch (const std::exception& error) {
    throw formatted<DataError>("'{}' is not a trace of a rank: {}", path.string(), error.what());
  }
}

/// The latest run that began with this folder; empty: unknown.
std::string named_run(const fs::path& folder) {
  std::ifstream file(folder / "trace-run.json");
  const json run = json::parse(file, nullptr, false);
  return run.is_object() && run.contains("run") && run["run"].is_string() ? run["run"].get<std::string>()
                                                                          : "";
}

/// Leaves the traces of the latest run.
void leave_latest(const fs::path& folder, std::vector<RankTrace>& traces) {
  std::string latest = named_run(folder);
  for (const auto& trace : traces) latest = std::max(latest, trace.run);
  if (std::erase_if(traces, [&](const RankTrace& trace) { return trace.run != latest; }) == 0 ||
      !traces.empty())
    return;
  throw formatted<DataError>(
      "the ranks of the latest run in '{}' wrote no traces (they were killed, or are still running: see "
      "--request). The traces in this folder are from an earlier run.",
      folder.string());
}

using Key = std::pair<std::string, std::uint64_t>;

/// Whether no rank leaves the operation before all have arrived.
bool ends_together(const TracedOperation& operation) {
  const bool joint =
      operation.name.starts_with("all_") || operation.name.find("barrier") != std::string::npos;
  return joint && !operation.is_message && operation.state == "completed" && operation.end != 0;
}

std::map<Key, std::int64_t> ends_of(const RankTrace& trace) {
  std::map<Key, std::int64_t> ends;
  for (const auto& operation : trace.operations) {
    if (ends_together(operation)) ends.emplace(Key{operation.group, operation.number}, operation.end);
  }
  return ends;
}

/// By how much the clock of the first argument is ahead.
std::optional<std::int64_t> lead_of(const RankTrace& trace, const RankTrace& reference) {
  const auto expected = ends_of(reference);
  std::vector<std::int64_t> leads;
  for (const auto& [key, end] : ends_of(trace)) {
    if (const auto there = expected.find(key); there != expected.end()) leads.push_back(end - there->second);
  }
  if (leads.empty()) return std::nullopt;
  const auto middle = leads.begin() + static_cast<std::ptrdiff_t>(leads.size() / 2);
  std::nth_element(leads.begin(), middle, leads.end());
  return *middle;
}

void move(RankTrace& trace, std::int64_t amount) {
  trace.wall_offset += amount;
  for (auto& operation : trace.operations) {
    operation.begin -= amount;
    if (operation.end != 0) operation.end -= amount;
  }
  for (auto& span : trace.spans) {
    span.begin -= amount;
    span.end -= amount;
  }
}

/// Shifts the times of all hosts except the first so that collectives end at the same time on all hosts: by
/// the median over the collectives that the first rank of both hosts has completed. Hosts without a common
/// one are not shifted.
void set_clocks(std::vector<RankTrace>& traces) {
  std::map<std::string, std::int64_t> leads{{traces.front().host, 0}};
  for (auto& trace : traces) {
    const auto known = leads.find(trace.host);
    const auto lead = known != leads.end() ? known->second : lead_of(trace, traces.front()).value_or(0);
    leads.emplace(trace.host, lead);
    if (lead != 0) move(trace, lead);
  }
}

}  // namespace

std::string TracedOperation::text() const {
  return fmt::format("{} #{}{}", name, number, label.empty() ? "" : fmt::format(" ({})", label));
}

std::vector<RankTrace> read_traces(const fs::path& folder) {
  std::error_code failure;
  std::vector<RankTrace> traces;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("trace-rank-") || !name.ends_with(".json")) continue;
    if (!entry.is_regular_file())
      throw formatted<DataError>("'{}' is not a trace of a rank: it is no file.", entry.path().string());
    traces.push_back(read_trace(entry.path()));
  }
  if (failure)
    throw formatted<DataError>("cannot read the folder '{}': {}.", folder.string(), failure.message());
  if (traces.empty()) {
    throw formatted<DataError>(
        "'{}' holds no trace-rank-N.json: was the job started with LOCKSTEP_TRACE_DIR, and has something "
        "failed, ended or been asked for?",
        folder.string());
  }
  leave_latest(folder, traces);
  std::ranges::sort(traces, {}, &RankTrace::rank);
  set_clocks(traces);
  return traces;
}

}  // namespace lockstep::launch

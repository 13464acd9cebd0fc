#include "trace/rank_trace.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "trace/host_clocks.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string claim_of(const json& entry) {
  std::string claim = entry.at("profiling_name").get<std::string>();
  if (const auto op = entry.value("reduce_op", ""); !op.empty()) claim += " of " + op;
  if (const int peer = entry.value("peer", -1); peer >= 0) claim += " with " + std::to_string(peer);
  const bool any_size = claim.find("all_to_all") != std::string::npos;
  for (const auto& dtype : entry.at("input_dtypes")) claim += ", " + dtype.get<std::string>();
  return any_size ? claim : claim + " " + entry.at("input_sizes").dump();
}

std::string plain_name(const std::string& profiling_name) {
  return profiling_name.substr(profiling_name.find(':') + 1);
}

TracedOperation operation_of(const json& entry, std::int64_t offset) {
  TracedOperation result;
  result.group = entry.at("process_group").at(1).get<std::string>();
  result.is_message = entry.value("is_p2p", false);
  result.number = entry.at(result.is_message ? "p2p_seq_id" : "collective_seq_id").get<std::uint64_t>();
  result.name = plain_name(entry.at("profiling_name").get<std::string>());
  result.label = entry.value("label", "");
  result.claim = claim_of(entry);
  result.state = entry.at("state").get<std::string>();
  result.begin = entry.at("time_created_ns").get<std::int64_t>() - offset;
  const auto end = entry.find("time_discovered_completed_ns");
  if (end != entry.end() && !end->is_null()) result.end = end->get<std::int64_t>() - offset;
  return result;
}

RankTrace trace_of(const json& file) {
  RankTrace trace;
  trace.rank = file.at("rank").get<int>();
  trace.world_size = file.at("world_size").get<int>();
  trace.host = file.at("host").get<std::string>();
  trace.reason = file.at("reason").get<std::string>();
  const auto offset = file.at("wall_offset_ns").get<std::int64_t>();
  for (const auto& entry : file.at("entries")) trace.operations.push_back(operation_of(entry, offset));
  for (const auto& span : file.at("spans")) {
    trace.spans.push_back({span.at("name").get<std::string>(), span.at("thread").get<long>(),
                           span.at("begin_ns").get<std::int64_t>() - offset,
                           span.at("end_ns").get<std::int64_t>() - offset});
  }
  const json groups = file.value("pg_config", json::object());
  for (const auto& [number, group] : groups.items()) {
    trace.groups[group.at("desc").get<std::string>()] =
        json::parse(group.at("ranks").get<std::string>()).get<std::vector<int>>();
  }
  return trace;
}

RankTrace read_trace(const fs::path& path) {
  std::ifstream file(path);
  try {
    return trace_of(json::parse(file));
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is no trace of a rank: " + error.what());
  }
}

bool is_trace(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("trace-rank-") && name.ends_with(".json");
}

}  // namespace

std::string TracedOperation::text() const {
  return name + " #" + std::to_string(number) + (label.empty() ? "" : " (" + label + ")");
}

std::vector<RankTrace> read_traces(const fs::path& folder) {
  std::error_code failure;
  std::vector<RankTrace> traces;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (is_trace(entry.path())) traces.push_back(read_trace(entry.path()));
  }
  if (failure) throw DataError("cannot read the folder '" + folder.string() + "': " + failure.message());
  if (traces.empty()) {
    throw DataError("'" + folder.string() + "' holds no trace-rank-N.json: was the job started with " +
                    "LOCKSTEP_TRACE_DIR, and has something failed, ended or been asked for?");
  }
  std::sort(traces.begin(), traces.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  set_clocks(traces);
  return traces;
}

}  // namespace lockstep::launch

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/host_name.hpp"
#include "flight_recorder.hpp"

namespace lockstep::comm {
namespace {

using nlohmann::json;

const char* name_of(OperationState state) {
  switch (state) {
    case OperationState::scheduled:
      return "scheduled";
    case OperationState::started:
      return "started";
    case OperationState::completed:
      return "completed";
    case OperationState::failed:
      break;
  }
  return "failed";
}

/// What has to be added to this host's monotonic clock for the time of day. Taken once a dump: all times of
/// a dump, and of all dumps of one host, are those of the monotonic clock.
std::int64_t wall_offset() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - monotonic_now();
}

json sizes_of(const OperationFacts& facts) {
  json sizes = json::array();
  for (std::int32_t i = 0; i < facts.dimensions && i < static_cast<std::int32_t>(facts.sizes.size()); ++i)
    sizes.push_back(facts.sizes[static_cast<std::size_t>(i)]);
  return sizes;
}

json tensors_of(const OperationFacts& facts, const json& each) {
  json all = json::array();
  if (*facts.dtype != '\0') all.push_back(each);
  return all;
}

json entry_of(const OperationRecord& record, const GroupFacts& group, std::int64_t offset) {
  const OperationFacts& facts = record.facts;
  const bool message = facts.is_message;
  json entry{{"record_id", record.ticket.id},
             {"pg_id", record.ticket.group},
             {"process_group", {std::to_string(record.ticket.group), group.name}},
             {"collective_seq_id", message ? 0 : record.ticket.sequence},
             {"p2p_seq_id", message ? record.ticket.sequence : 0},
             {"op_id", record.ticket.id},
             {"is_p2p", message},
             {"profiling_name", group.backend + ":" + facts.name},
             {"input_sizes", tensors_of(facts, sizes_of(facts))},
             {"input_dtypes", tensors_of(facts, facts.dtype)},
             {"state", name_of(record.state)},
             {"retired", record.finished != 0},
             {"time_created_ns", record.created + offset},
             {"frames", json::array()},
             {"label", std::string(record.label.view())},
             {"bytes", facts.bytes},
             {"reduce_op", facts.reduce_op},
             {"peer", facts.peer}};
  if (record.state != OperationState::scheduled)
    entry["time_discovered_started_ns"] = record.created + offset;
  if (record.finished == 0) return entry;
  entry["time_discovered_completed_ns"] = record.finished + offset;
  entry["duration_ms"] = static_cast<double>(record.finished - record.created) / 1e6;
  return entry;
}

}  // namespace

json FlightRecorder::dump(const std::string& reason) const {
  const std::int64_t offset = wall_offset();
  const std::lock_guard lock(mutex_);
  json result{
      {"version", "2.10"},     {"rank", rank_},    {"world_size", world_size_}, {"host", host_name()},
      {"pid", getpid()},       {"reason", reason}, {"wall_offset_ns", offset},  {"entries", json::array()},
      {"spans", json::array()}};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    result["pg_config"][std::to_string(i)] = {
        {"name", std::to_string(i)}, {"desc", groups_[i].name}, {"ranks", json(groups_[i].ranks).dump()}};
    result["pg_status"][std::to_string(i)] = {{"last_enqueued_collective", progress_[i].collectives},
                                              {"finished_operations", progress_[i].finished}};
  }
  const std::uint64_t first = next_ > ring_.size() ? next_ - ring_.size() : 1;
  for (std::uint64_t id = first; id < next_; ++id) {
    const OperationRecord* record = at(id);
    if (record == nullptr) continue;
    result["entries"].push_back(
        entry_of(*record, groups_[static_cast<std::size_t>(record->ticket.group)], offset));
  }
  for (const auto& span : process_spans().spans()) {
    result["spans"].push_back({{"name", span.name},
                               {"thread", span.thread},
                               {"begin_ns", span.begin + offset},
                               {"end_ns", span.end + offset}});
  }
  return result;
}

}  // namespace lockstep::comm

#include "comm/diagnostics/flight_recorder.hpp"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/host_name.hpp"
#include "core/json_text.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t kMostSpans = 20'000;

bool is_under_way(const OperationRecord& record) {
  return record.id.serial != 0 && record.state == OperationState::started;
}

using nlohmann::json;

constexpr const char* kStateNames[] = {"started", "completed", "failed"};

/// The offset from this host's monotonic clock to the time of day. Determined once per dump: all times in a
/// dump are those of the monotonic clock plus this offset.
std::int64_t wall_offset() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - monotonic_now();
}

/// The last ranges of this process.
struct SpanLog {
  std::mutex mutex;
  std::vector<SpanRecord> spans;
  std::size_t next = 0;
};

/// Never destroyed, because threads may end their ranges until the process ends.
SpanLog& span_log() {
  static auto* const log = new SpanLog();
  return *log;
}

json entry_of(const OperationRecord& record, const GroupFacts& group, std::int64_t offset) {
  const OpMeta& meta = record.meta;
  const bool message = meta.is_message;
  const auto of_tensor = [&](const json& fact) {
    return *meta.dtype == '\0' ? json::array() : json::array({fact});
  };
  const auto sizes = meta.shown_sizes();
  json entry{{"record_id", record.id.serial},
             {"pg_id", record.id.group},
             {"process_group", {fmt::to_string(record.id.group), group.name}},
             {"collective_seq_id", message ? 0 : record.id.sequence},
             {"p2p_seq_id", message ? record.id.sequence : 0},
             {"op_id", record.id.serial},
             {"is_p2p", message},
             {"profiling_name", group.backend + ":" + meta.name},
             {"input_sizes", of_tensor(std::vector(sizes.begin(), sizes.end()))},
             {"input_dtypes", of_tensor(meta.dtype)},
             {"state", kStateNames[static_cast<std::size_t>(record.state)]},
             {"retired", record.finished != 0},
             {"time_created_ns", record.created + offset},
             {"time_discovered_started_ns", record.created + offset},
             {"frames", json::array()},
             {"label", std::string(record.label.view())},
             {"bytes", meta.bytes},
             {"reduce_op", meta.reduce_op},
             {"peer", meta.peer}};
  if (record.finished == 0) return entry;
  entry["time_discovered_completed_ns"] = record.finished + offset;
  entry["duration_ms"] = static_cast<double>(record.finished - record.created) / 1e6;
  return entry;
}

}  // namespace

void add_span(SpanRecord span) {
  SpanLog& log = span_log();
  const std::lock_guard lock(log.mutex);
  if (log.spans.size() < kMostSpans) return log.spans.push_back(std::move(span));
  log.spans[log.next++ % kMostSpans] = std::move(span);
}

std::string OperationRecord::text() const {
  std::vector<std::string> details;
  if (!label.view().empty()) details.emplace_back(label.view());
  if (meta.is_message && meta.peer >= 0) {
    const bool receives = std::string_view(meta.name) == "recv";
    details.push_back(fmt::format("{} rank {} of the group", receives ? "from" : "to", meta.peer));
  }
  if (*meta.dtype != '\0') {
    details.push_back(fmt::format("{} {}", meta.dtype, sizes_text(meta)));
    details.push_back(size_text(meta.bytes));
  }
  const std::string result = fmt::format("{} #{}", meta.name, id.sequence);
  return details.empty() ? result : fmt::format("{} ({})", result, fmt::join(details, ", "));
}

FlightRecorder::FlightRecorder(int rank, int world_size, std::size_t capacity)
    : rank_(rank), world_size_(world_size), ring_(capacity) {}

int FlightRecorder::add_group(GroupFacts meta) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(meta));
  progress_.emplace_back();
  return static_cast<int>(groups_.size()) - 1;
}

OperationRecord* FlightRecorder::at(std::uint64_t serial) const {
  if (ring_.empty()) return nullptr;
  OperationRecord& record = ring_[serial % ring_.size()];
  return record.id.serial == serial ? &record : nullptr;
}

OperationId FlightRecorder::begin(int group, const OpMeta& meta) {
  const std::int64_t now = monotonic_now();
  const std::lock_guard lock(mutex_);
  Progress& progress = progress_[static_cast<std::size_t>(group)];
  const OperationId id{next_++, group, meta.is_message ? ++progress.messages : ++progress.collectives};
  if (ring_.empty()) {
    evicted_.push_back(id.serial);
    return id;
  }
  OperationRecord& record = ring_[id.serial % ring_.size()];
  if (is_under_way(record)) evicted_.push_back(record.id.serial);
  record = {.id = id, .meta = meta, .label = OperationLabel::current(), .created = now};
  return id;
}

void FlightRecorder::finish(const OperationId& id, bool success) {
  const std::int64_t now = monotonic_now();
  const std::lock_guard lock(mutex_);
  if (OperationRecord* record = at(id.serial)) {
    if (record->finished != 0) return;
    record->state = success ? OperationState::completed : OperationState::failed;
    record->finished = now;
  } else if (std::erase(evicted_, id.serial) == 0) {
    return;
  }
  ++progress_[static_cast<std::size_t>(id.group)].finished;
}

std::optional<OperationRecord> FlightRecorder::find(const OperationId& id) const {
  const std::lock_guard lock(mutex_);
  const OperationRecord* record = at(id.serial);
  return record == nullptr ? std::nullopt : std::optional(*record);
}

std::optional<OperationRecord> FlightRecorder::find_collective(int group, std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  for (const auto& record : ring_) {
    const OperationId& id = record.id;
    if (id.serial != 0 && id.group == group && id.sequence == sequence && !record.meta.is_message) {
      return record;
    }
  }
  return std::nullopt;
}

std::optional<OperationRecord> FlightRecorder::oldest_unfinished() const {
  const std::lock_guard lock(mutex_);
  const OperationRecord* oldest = nullptr;
  for (const auto& record : ring_) {
    if (is_under_way(record) && (oldest == nullptr || record.id.serial < oldest->id.serial)) oldest = &record;
  }
  return oldest == nullptr ? std::nullopt : std::optional(*oldest);
}

FlightRecorder::Progress FlightRecorder::progress(int group) const {
  const std::lock_guard lock(mutex_);
  return progress_.at(static_cast<std::size_t>(group));
}

std::uint64_t FlightRecorder::operations() const {
  const std::lock_guard lock(mutex_);
  return next_ - 1;
}

int FlightRecorder::find_group(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) { return group.name == name; });
  return found == groups_.end() ? -1 : static_cast<int>(found - groups_.begin());
}

GroupFacts FlightRecorder::group(int number) const {
  const std::lock_guard lock(mutex_);
  return groups_.at(static_cast<std::size_t>(number));
}

int FlightRecorder::groups() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(groups_.size());
}

json FlightRecorder::dump(const std::string& reason) const {
  const std::int64_t offset = wall_offset();
  const std::lock_guard lock(mutex_);
  json result{{"version", "2.10"},
              {"rank", rank_},
              {"world_size", world_size_},
              {"host", host_name()},
              {"run", run_},
              {"pid", getpid()},
              {"reason", reason},
              {"wall_offset_ns", offset},
              {"entries", json::array()},
              {"spans", json::array()}};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    result["pg_config"][fmt::to_string(i)] = {
        {"name", fmt::to_string(i)}, {"desc", groups_[i].name}, {"ranks", json_text(json(groups_[i].ranks))}};
    result["pg_status"][fmt::to_string(i)] = {{"last_enqueued_collective", progress_[i].collectives},
                                              {"finished_operations", progress_[i].finished}};
  }
  const std::uint64_t first = next_ > ring_.size() ? next_ - ring_.size() : 1;
  for (std::uint64_t id = first; id < next_; ++id) {
    const OperationRecord* record = at(id);
    if (record == nullptr) continue;
    result["entries"].push_back(
        entry_of(*record, groups_[static_cast<std::size_t>(record->id.group)], offset));
  }
  // Copied: threads that end a range must not wait for the JSON.
  const std::vector<SpanRecord> spans = [] {
    const std::lock_guard spans_lock(span_log().mutex);
    return span_log().spans;
  }();
  for (const auto& span : spans) {
    result["spans"].push_back({{"name", span.name},
                               {"thread", span.thread},
                               {"begin_ns", span.begin + offset},
                               {"end_ns", span.end + offset}});
  }
  return result;
}

}  // namespace lockstep::comm

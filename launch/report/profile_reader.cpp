#include "report/profile_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/input_file.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLargestProfile = std::uint64_t{4} << 30;
constexpr std::size_t kMostProfileEvents = 20'000'000;

enum class EventKind { other, operation, annotation, gpu };

/// An event that lasts: its times are in microseconds. Names are numbered.
struct ProfileEvent {
  double begin = 0;
  double duration = 0;
  double thread = 0;
  std::size_t name = 0;
  EventKind kind = EventKind::other;
};

EventKind kind_of_category(const std::string& category) {
  if (category == "cpu_op") return EventKind::operation;
  if (category == "user_annotation") return EventKind::annotation;
  if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") return EventKind::gpu;
  return EventKind::other;
}

/// Keeps the complete events ("ph": "X") of "traceEvents", and nothing else, while the file is parsed.
class EventCollector final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    if (depth_ != kEventDepth || !in_events_) return true;
    if (key_ == "ph") is_complete_ = value == "X";
    if (key_ == "cat") event_.kind = kind_of_category(value);
    if (key_ == "name") name_ = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    if (++depth_ == kEventDepth) start_event();
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ <= kEventDepth) key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (depth_-- == kEventDepth && in_events_) end_event();
    return events_.size() < kMostProfileEvents;
  }
  bool start_array(std::size_t) override {
    if (++depth_ == 2 && key_ == "traceEvents") in_events_ = has_events_ = true;
    return true;
  }
  bool end_array() override {
    if (depth_-- == 2) in_events_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_ = fmt::format("it is not valid JSON at its byte {}", position);
    return false;
  }

  std::vector<ProfileEvent>& events() { return events_; }
  const std::vector<std::string>& names() const { return names_; }
  bool has_events() const { return has_events_; }
  const std::string& error() const { return error_; }

 private:
  /// The file's object, its list, and an event.
  static constexpr int kEventDepth = 3;

  bool number(double value) {
    if (depth_ != kEventDepth || !in_events_) return true;
    if (key_ == "ts") event_.begin = value;
    if (key_ == "dur") event_.duration = value;
    if (key_ == "tid") event_.thread = value;
    return true;
  }

  void start_event() {
    event_ = {};
    name_.clear();
    is_complete_ = false;
  }

  void end_event() {
    if (!is_complete_ || event_.kind == EventKind::other || !(event_.duration >= 0)) return;
    const auto [number, is_new] = numbers_.try_emplace(name_, names_.size());
    if (is_new) names_.push_back(name_);
    event_.name = number->second;
    events_.push_back(event_);
  }

  int depth_ = 0;
  bool in_events_ = false, has_events_ = false, is_complete_ = false;
  std::string key_, name_, error_;
  ProfileEvent event_;
  std::vector<ProfileEvent> events_;
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> numbers_;
};

/// Takes from each event the time of those that it called: on a thread, events are nested.
std::vector<double> own_times(std::vector<ProfileEvent>& events) {
  std::ranges::sort(events, [](const ProfileEvent& one, const ProfileEvent& other) {
    return std::tuple(one.thread, one.begin, -one.duration) <
           std::tuple(other.thread, other.begin, -other.duration);
  });
  std::vector<double> own(events.size());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < events.size(); ++i) {
    own[i] = events[i].duration;
    const auto is_over = [&](const ProfileEvent& outer) {
      return outer.thread != events[i].thread || outer.begin + outer.duration <= events[i].begin;
    };
    while (!open.empty() && is_over(events[open.back()])) open.pop_back();
    if (!open.empty()) own[open.back()] -= events[i].duration;
    open.push_back(i);
  }
  return own;
}

ProfileSummary summary_of(EventCollector& collected) {
  ProfileSummary summary;
  auto& events = collected.events();
  summary.is_of_gpu =
      std::ranges::any_of(events, [](const auto& event) { return event.kind == EventKind::gpu; });
  for (const auto& event : events) {
    if (event.kind != EventKind::annotation || !collected.names()[event.name].starts_with("ProfilerStep#"))
      continue;
    ++summary.steps;
    summary.seconds_per_step += event.duration / 1e6;
  }
  if (summary.steps > 0) summary.seconds_per_step /= summary.steps;
  std::erase_if(events,
                [&](const auto& event) { return (event.kind == EventKind::gpu) != summary.is_of_gpu; });
  const auto own = own_times(events);
  std::map<std::size_t, OperatorTime> by_name;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == EventKind::annotation) continue;
    auto& one = by_name[events[i].name];
    ++one.calls;
    one.seconds += std::max(own[i], 0.0) / 1e6;
  }
  for (auto& [name, one] : by_name) {
    one.name = utf8_text(collected.names()[name]);
    summary.operators.push_back(std::move(one));
  }
  std::ranges::stable_sort(summary.operators, std::ranges::greater(), &OperatorTime::seconds);
  return summary;
}

}  // namespace

ProfileSummary read_profile(const std::filesystem::path& path) {
  if (const InputFile file(path); file.size() > kLargestProfile)
    throw DataError(fmt::format("'{}' has {} bytes, more than a report reads.", path.string(), file.size()));
  std::ifstream file(path, std::ios::binary);
  EventCollector collected;
  const bool is_whole = json::sax_parse(file, &collected);
  if (!is_whole && collected.error().empty())
    throw DataError(fmt::format("'{}' has more events than a report reads.", path.string()));
  if (!is_whole) throw DataError(fmt::format("'{}' cannot be read: {}.", path.string(), collected.error()));
  if (!collected.has_events())
    throw DataError(fmt::format("'{}' is not a profiler's trace: it has no traceEvents.", path.string()));
  return summary_of(collected);
}

}  // namespace lockstep::launch

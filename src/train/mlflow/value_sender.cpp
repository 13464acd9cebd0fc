#include "train/mlflow/value_sender.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "core/host_name.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::mlflow {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kMostMetrics = 1000;
constexpr std::size_t kMostParams = 100;
constexpr std::size_t kBytesRead = 256U << 10U;
constexpr int kMostWarnings = 10;
/// What is logged within this time goes into one request.
constexpr milliseconds kGatheringTime{500};
constexpr milliseconds kFirstPause{500};
constexpr milliseconds kLongestPause{30'000};
constexpr milliseconds kLongestPauseAtEnd{1000};

std::string random_key() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

void say(const std::string& text) { std::cerr << "lockstep: " + text + "\n" << std::flush; }

/// An address without a name and a password in it, for files and messages.
std::string public_address(const std::string& uri) {
  const auto host = uri.find("://") + 3;
  const auto at = uri.substr(0, uri.find('/', host)).rfind('@');
  return at == std::string::npos || at < host ? uri : uri.substr(0, host) + uri.substr(at + 1);
}

bool has(const QueuedLine& line, const char* name) { return line.content.contains(name); }

std::int64_t step_of(const QueuedLine& line) { return line.content.at("step").get<std::int64_t>(); }

}  // namespace

std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

ValueSender::ValueSender(const std::filesystem::path& folder, MlflowOptions options)
    : folder_(folder),
      options_(std::move(options)),
      address_(public_address(options_.tracking_uri)),
      queue_(folder / "mlflow-unsent.jsonl"),
      record_(RunRecord::read(folder / "mlflow.json")),
      server_(options_),
      doubtful_until_(queue_.size()),
      repeated_until_(record_.last_step) {
  record_.sent = std::min(record_.sent, queue_.size());
  const bool is_other =
      (!record_.tracking_uri.empty() && record_.tracking_uri != address_) ||
      (!record_.run_id.empty() && !options_.run_id.empty() && record_.run_id != options_.run_id);
  if (is_other && has_work()) {
    throw UsageError(fmt::format(
        "the folder '{}' has values that were not sent to its run '{}' at {}, but now another run or server "
        "is "
        "named (MLFLOW_RUN_ID, MLFLOW_TRACKING_URI). Name that one again, or remove mlflow.json and "
        "mlflow-unsent.jsonl to give these values up.",
        folder_.string(), record_.run_id, record_.tracking_uri));
  }
  if (is_other) record_ = RunRecord{.sent = record_.sent};
  record_.tracking_uri = address_;
  if (record_.run_id.empty() && !options_.run_id.empty()) {
    // What the run has is not known here.
    record_.run_id = options_.run_id;
    record_.has_ended = true;
    repeated_until_ = std::numeric_limits<std::int64_t>::max();
  } else {
    repeated_until_ = record_.last_step;
  }
  read_cuts();
}

ValueSender::~ValueSender() {
  if (thread_.joinable()) close(milliseconds(0));
}

void ValueSender::read_cuts() {
  for (std::uint64_t place = record_.sent; place < queue_.size();) {
    for (const auto& line : queue_.read(place, kBytesRead)) {
      if (has(line, "resume_at"))
        cuts_.emplace_back(line.begin, line.content["resume_at"].get<std::int64_t>());
      place = line.end;
    }
  }
}

void ValueSender::add(const json& line) {
  const std::uint64_t place = queue_.size();
  queue_.add(line);
  const std::lock_guard lock(mutex_);
  if (line.contains("resume_at")) cuts_.emplace_back(place, line["resume_at"].get<std::int64_t>());
  if (!thread_.joinable()) thread_ = signal_free_thread([this] { run(); });
  changed_.notify_all();
}

std::uint64_t ValueSender::close(milliseconds time) {
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    closes_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, time, [this] { return !has_work(); });
    stops_ = true;
    changed_.notify_all();
    lock.unlock();
    server_.abort();
    thread_.join();
  }
  const std::uint64_t left = queue_.size() - record_.sent;
  if (left == 0 && queue_.size() > 0) {
    record_.sent = 0;
    record_.write(folder_ / "mlflow.json");
    std::filesystem::remove(queue_.path());
  }
  return left;
}

void ValueSender::run() {
  int failures = 0;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (!has_work()) {
      changed_.notify_all();
      changed_.wait(lock, [this] { return stops_ || has_work(); });
      changed_.wait_for(lock, kGatheringTime, [this] { return closes_; });
      continue;
    }
    lock.unlock();
    std::string problem;
    try {
      send_next();
      if (std::exchange(failures, 0) > 0 && std::exchange(is_away_, false))
        say(fmt::format("MLflow at {} answers again.", address_));
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (!problem.empty()) pause(++failures, problem);
    lock.lock();
  }
}

void ValueSender::pause(int failures, const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (stops_) return;
  if (!std::exchange(is_away_, true)) {
    say(fmt::format(
        "MLflow at {} cannot take the run's values: {}. The training goes on; they are kept in '{}' and "
        "sent later.",
        address_, reason, queue_.path().string()));
  }
  const milliseconds longest = closes_ ? kLongestPauseAtEnd : kLongestPause;
  changed_.wait_for(lock, std::min(longest, kFirstPause * (1 << std::min(failures - 1, 6))),
                    [this, had_closed = closes_] { return stops_ || closes_ != had_closed; });
}

void ValueSender::sent_until(std::uint64_t end) {
  {
    const std::lock_guard lock(mutex_);
    record_.sent = end;
  }
  record_.write(folder_ / "mlflow.json");
}

void ValueSender::send_next() {
  const Lines lines = queue_.read(record_.sent, kBytesRead);
  if (lines.empty()) return;
  const QueuedLine& first = lines.front();
  if (!has(first, "new_run")) open_run();
  if (has(first, "metrics")) return sent_until(send_metrics(lines));
  send_line(first);
  sent_until(first.end);
}

void ValueSender::send_line(const QueuedLine& line) {
  if (has(line, "params")) send_params(line.content["params"]);
  if (has(line, "status")) send_status(line.content);
  if (has(line, "new_run")) begin_new_run();
  if (has(line, "resume_at")) {
    stored_.clear();
    repeated_until_ = std::max(repeated_until_, record_.last_step);
  }
}

bool ValueSender::is_void(const QueuedLine& line) const {
  return std::ranges::any_of(
      cuts_, [&](const auto& cut) { return line.begin < cut.first && step_of(line) > cut.second; });
}

bool ValueSender::is_doubtful(const QueuedLine& line) const {
  return line.begin < doubtful_until_ || step_of(line) <= repeated_until_;
}

bool ValueSender::is_stored(const std::string& name, const Identity& value) {
  auto found = stored_.find(name);
  if (found == stored_.end()) {
    std::set<Identity> values;
    for (const auto& point : server_.history(record_.run_id, name))
      values.emplace(point.step, identity_of(point.value));
    found = stored_.emplace(name, std::move(values)).first;
  }
  return found->second.contains(value);
}

std::uint64_t ValueSender::send_metrics(const Lines& lines) {
  json metrics = json::array();
  std::uint64_t end = lines.front().begin;
  std::int64_t last_step = record_.last_step;
  auto last_values = last_values_;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& line : lines) {
      if (!has(line, "metrics")) break;
      if (!is_void(line)) {
        const auto& values = line.content["metrics"];
        if (metrics.size() + values.size() > kMostMetrics) break;
        for (const auto& value : values) {
          const auto name = value[0].get<std::string>();
          const Identity identity(step_of(line), identity_of(number_in(value[1])));
          const auto last = last_values.find(name);
          if (last != last_values.end() && last->second == identity) continue;
          last_values[name] = identity;
          metrics.push_back({{"key", name},
                             {"value", value[1]},
                             {"timestamp", line.content["time"]},
                             {"step", step_of(line)},
                             {"doubtful", is_doubtful(line)}});
        }
        last_step = std::max(last_step, step_of(line));
      }
      end = line.end;
    }
  }
  json fresh = json::array();
  for (auto& metric : metrics) {
    const bool is_known =
        metric["doubtful"].get<bool>() && is_stored(metric["key"], {metric["step"].get<std::int64_t>(),
                                                                    identity_of(number_in(metric["value"]))});
    metric.erase("doubtful");
    if (!is_known) fresh.push_back(std::move(metric));
  }
  try {
    log("metrics", fresh);
  } catch (const NoAnswer& failure) {
    if (failure.may_have_arrived()) {
      doubtful_until_ = std::max(doubtful_until_, end);
      stored_.clear();
    }
    throw;
  }
  record_.last_step = last_step;
  last_values_ = std::move(last_values);
  if (end >= doubtful_until_ && last_step > repeated_until_) stored_.clear();
  return end;
}

void ValueSender::send_params(const json& params) {
  for (std::size_t at = 0; at < params.size(); at += kMostParams) {
    json some = json::array();
    for (std::size_t i = at; i < std::min(at + kMostParams, params.size()); ++i)
      some.push_back({{"key", params[i][0]}, {"value", params[i][1]}});
    log("params", some);
  }
}

void ValueSender::log(const std::string& kind, const json& entries) {
  if (entries.empty()) return;
  try {
    server_.log_batch({{"run_id", record_.run_id}, {kind, entries}});
  } catch (const Refused& refusal) {
    if (entries.size() == 1) {
      if (++warnings_ <= kMostWarnings) {
        say(fmt::format("MLflow refuses {} '{}', which is left out: {}{}",
                        kind == "params" ? "parameter" : "value", entries[0]["key"].get<std::string>(),
                        refusal.what(), warnings_ == kMostWarnings ? " (further ones are not named)" : ""));
      }
      return;
    }
    const auto middle = entries.begin() + static_cast<std::ptrdiff_t>(entries.size() / 2);
    log(kind, json(json::array_t(entries.begin(), middle)));
    log(kind, json(json::array_t(middle, entries.end())));
  }
}

void ValueSender::send_status(const json& line) {
  server_.update_run(record_.run_id, line["status"], line["time"].get<std::int64_t>());
  record_.has_ended = true;
}

void ValueSender::begin_new_run() {
  // A run that the user named is the one to use.
  if (record_.run_id.empty() || record_.run_id == options_.run_id) return;
  if (!record_.has_ended) server_.update_run(record_.run_id, "KILLED", now_in_milliseconds());
  record_.run_id.clear();
  record_.run_key.clear();
  record_.last_step = repeated_until_ = kNoStep;
  stored_.clear();
  last_values_.clear();
}

void ValueSender::open_run() {
  if (record_.run_id.empty()) {
    record_.experiment_id = options_.experiment_id.empty() ? server_.experiment(options_.experiment_name)
                                                           : options_.experiment_id;
    record_.run_id = new_run();
  } else if (record_.has_ended) {
    server_.update_run(record_.run_id, "RUNNING", std::nullopt);
  } else {
    return;
  }
  record_.has_ended = false;
  record_.write(folder_ / "mlflow.json");
}

std::string ValueSender::new_run() {
  if (!record_.run_key.empty()) {
    if (const auto made = server_.find_run(record_.experiment_id, record_.run_key)) return *made;
  } else {
    record_.run_key = random_key();
    record_.write(folder_ / "mlflow.json");
  }
  json request{{"experiment_id", record_.experiment_id},
               {"start_time", now_in_milliseconds()},
               {"tags", json::array({{{"key", "lockstep.key"}, {"value", record_.run_key}},
                                     {{"key", "lockstep.version"}, {"value", version()}},
                                     {{"key", "lockstep.host"}, {"value", host_name()}},
                                     {{"key", "mlflow.source.type"}, {"value", "LOCAL"}}})}};
  if (!options_.run_name.empty()) request["run_name"] = options_.run_name;
  return server_.create_run(request);
}

}  // namespace lockstep::mlflow

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "train/mlflow/mlflow_server.hpp"
#include "train/mlflow/run_record.hpp"
#include "train/mlflow/value_queue.hpp"

namespace lockstep::mlflow {

/// Sends the lines of a queue to the server, in a thread of its own, in their order and each once:
///
///     {"metrics":[["train/loss",0.5]],"step":10,"time":1790000000000}     at most 500; numbers or texts
///     {"params":[["seed","42"]]}
///     {"resume_at":10}     steps after it are no longer part of the run
///     {"new_run":true}     what follows belongs to another run
///     {"status":"FINISHED","time":1790000000000}
///
/// The record says how much the server has. Its file is replaced after each answer, so the end of the process
/// between an answer and that leaves a batch of which nobody knows whether it arrived; so does a request
/// without an answer. Such lines are doubtful: those of them that the server's history already has, by name,
/// step and value, are left out when they are sent again. The values of repeated steps are treated alike.
class ValueSender {
 public:
  /// Starts no thread yet. Throws UsageError if the folder belongs to another run.
  ValueSender(const std::filesystem::path& folder, MlflowOptions options);
  /// Does not wait for an answer of the server.
  ~ValueSender();
  ValueSender(const ValueSender&) = delete;
  ValueSender& operator=(const ValueSender&) = delete;

  /// Adds a line, and starts the thread at the first one. Throws Error if it cannot be written.
  void add(const nlohmann::json& line);
  /// Waits until all is sent, for that long at most, and ends the thread. Returns how many bytes of the queue
  /// are left; at 0 its file is removed.
  std::uint64_t close(std::chrono::milliseconds time);

  const ValueQueue& queue() const noexcept { return queue_; }

 private:
  using Lines = std::vector<QueuedLine>;
  /// A step, and identity_of() its value.
  using Identity = std::pair<std::int64_t, std::uint64_t>;

  void run();
  bool has_work() const { return record_.sent < queue_.size(); }
  /// Sends the next request's lines. Throws as MlflowServer does.
  void send_next();
  void send_line(const QueuedLine& line);
  /// As many of the first lines as one request takes; returns where they end.
  std::uint64_t send_metrics(const Lines& lines);
  void send_params(const nlohmann::json& params);
  void send_status(const nlohmann::json& line);
  void begin_new_run();
  /// Finds or creates the run; sets an ended one to RUNNING.
  void open_run();
  std::string new_run();
  /// In halves, if the server refuses it; a single value that it refuses is left out with a warning.
  void log(const std::string& kind, const nlohmann::json& entries);
  bool is_void(const QueuedLine& line) const;
  /// Whether the server may have the values of the line.
  bool is_doubtful(const QueuedLine& line) const;
  bool is_stored(const std::string& name, const Identity& value);
  void sent_until(std::uint64_t end);
  void read_cuts();
  void pause(int failures, const std::string& reason);

  std::filesystem::path folder_;
  MlflowOptions options_;
  /// The server's, without secrets.
  std::string address_;
  ValueQueue queue_;
  RunRecord record_;
  MlflowServer server_;
  /// Lines that begin before this place may have arrived.
  std::uint64_t doubtful_until_;
  /// Values of steps up to this one may be repeated.
  std::int64_t repeated_until_;
  /// {place, step} of each "resume_at": lines before the place, of steps after it, are void.
  std::vector<std::pair<std::uint64_t, std::int64_t>> cuts_;
  /// What the server has, by name, of names that were looked up.
  std::map<std::string, std::set<Identity>> stored_;
  /// The last value of each name that was sent: the same one is logged again with other values of its step.
  std::map<std::string, Identity> last_values_;
  bool is_away_ = false;
  int warnings_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closes_ = false;
  bool stops_ = false;
  std::thread thread_;
};

/// Milliseconds since 1970.
std::int64_t now_in_milliseconds();

}  // namespace lockstep::mlflow

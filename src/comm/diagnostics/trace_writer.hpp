#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/diagnostics/flight_recorder.hpp"

namespace lockstep::comm {

/// Writes a rank's recorder to a folder, beside `trace-run.json`, which names the latest run. It writes on
/// write(), when the folder's file `request` is touched, and when the process is asked for its stacks
/// (`lockstep stacks`). A thread checks the latter two once a second; there is none without a folder.
class TraceWriter {
 public:
  TraceWriter(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path folder);
  /// Writes a last time, if there is a folder.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// Writes to the writer's folder, if it has one. Never throws, so that a failure does not end the training;
  /// it is reported on standard error.
  void write(const std::string& reason) noexcept;

  /// Creates `folder`, writes `trace-rank-3.json` there and returns its path. Throws Error.
  static std::filesystem::path write_into(const FlightRecorder& recorder, const std::filesystem::path& folder,
                                          const std::string& reason);

 private:
  void serve() noexcept;
  void name_run() noexcept;

  std::shared_ptr<FlightRecorder> recorder_;
  std::filesystem::path folder_;
  std::mutex writing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm

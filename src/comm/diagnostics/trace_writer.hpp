#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/diagnostics/flight_recorder.hpp"

namespace lockstep::comm {

/// Writes a rank's recorder into a folder: when told, when the folder's file `request` is renewed, and when
/// the process is asked for its stacks (`lockstep stacks`). For the last two it has a thread, which looks
/// once a second; without a folder there is none.
class TraceWriter {
 public:
  TraceWriter(std::shared_ptr<FlightRecorder> recorder, std::filesystem::path folder);
  /// Writes once more, where there is a folder.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// Writes into the writer's folder, if it has one. Never throws: a trace is not worth the training; a
  /// failure is told on standard error.
  void write(const std::string& reason) noexcept;

  /// Writes `trace-rank-3.json` into `folder`, which is made, and returns its path. Throws Error.
  static std::filesystem::path write_into(const FlightRecorder& recorder, const std::filesystem::path& folder,
                                          const std::string& reason);

 private:
  void serve() noexcept;

  std::shared_ptr<FlightRecorder> recorder_;
  std::filesystem::path folder_;
  std::mutex writing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm

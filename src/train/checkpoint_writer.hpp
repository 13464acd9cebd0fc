#pragma once

#include <exception>
#include <functional>
#include <thread>

namespace lockstep::train {

/// Writes one checkpoint at a time in a thread of its own. What a write throws comes out of the next call.
/// *Local*; used by one thread.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the write under way. What it threw, and nobody asked for, goes to standard error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the write before, and begins this one. Throws what the one before threw; then this one is not
  /// begun.
  void start(std::function<void()> write);

  /// Waits for the write under way, if there is one. Throws what it threw.
  void wait();

 private:
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace lockstep::train

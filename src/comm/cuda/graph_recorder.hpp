#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/cuda/plugin.hpp"

namespace lockstep::comm {

/// Records what a device is given. That of CUDA devices is Lockstep's CUDA library.
class GraphRecorder {
 public:
  GraphRecorder() = default;
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;
  virtual ~GraphRecorder() = default;

  virtual GraphPool make_pool() = 0;
  virtual std::unique_ptr<CudaGraph> make_graph(const GraphPool& pool) = 0;
  /// Whether this thread's current stream is being recorded.
  virtual bool is_recording() = 0;
  /// Whether this thread's current stream can be recorded: the default one cannot.
  virtual bool can_record_here(const at::Device& device) = 0;
  /// Returns memory to the device that the allocator keeps for later.
  virtual void empty_cache() = 0;

  /// While it exists, the host may wait for the device, whatever the SyncDebugMode.
  class Waiting {
   public:
    explicit Waiting(const at::Device& device);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    bool is_cuda_;
    SyncDebugMode before_ = SyncDebugMode::off;
  };

  /// The recorder for a device; null if its work cannot be recorded, or the CUDA library is not loaded.
  static GraphRecorder* of(const at::Device& device) noexcept;

  /// Lets `recorder` stand for the one of all devices until the result is destroyed: for tests without a GPU.
  static std::shared_ptr<void> replace(GraphRecorder& recorder);
};

/// While it exists, what this thread computes is, or may later be, recorded as a CUDA graph: operations must
/// not let the host wait for the device, and must do the same in usual runs as in the recorded one. Objects
/// may be nested. A backward pass in other threads does not see it.
class RecordableWork {
 public:
  RecordableWork() noexcept;
  ~RecordableWork();
  RecordableWork(const RecordableWork&) = delete;
  RecordableWork& operator=(const RecordableWork&) = delete;

  /// Whether one exists in this thread.
  static bool is_here() noexcept;
};

}  // namespace lockstep::comm

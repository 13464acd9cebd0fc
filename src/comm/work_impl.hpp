#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "lockstep/comm/work.hpp"

namespace lockstep {

/// Which operation a Work is, kept small because it is only put into words when the operation fails.
struct Operation {
  const char* name;
  /// Counts the group's collectives, or messages, from 1; equal on all ranks that call in the same order. 0:
  /// not started yet.
  std::int64_t number;
  std::shared_ptr<const std::string> who;
  at::Tensor tensor;

  std::string describe() const;
};

/// Something to wait for, and what to do with it then.
class Work::Impl {
 public:
  /// `finish` runs once, in the thread of the first wait(), when the operation has succeeded.
  Impl(c10::intrusive_ptr<c10d::Work> work, Operation operation, std::function<void()> finish);
  /// A further step behind another Work.
  Impl(const Work& inner, std::function<void()> finish);

  void wait();
  bool is_completed() const { return work_->isCompleted(); }
  int source_rank() const { return work_->sourceRank(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  Operation operation_;
  std::function<void()> finish_;
  std::mutex mutex_;
  bool waited_ = false;
};

}  // namespace lockstep

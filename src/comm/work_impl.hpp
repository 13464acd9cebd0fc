#pragma once

#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm/work_description.hpp"
#include "lockstep/comm/work.hpp"

namespace lockstep {

/// An operation to wait for, and what to do afterwards.
class Work::Impl {
 public:
  c10::intrusive_ptr<c10d::Work> work;
  WorkDescription description;
  /// Runs once, in the thread of the first wait(), after the operation has succeeded.
  std::function<void()> finish;
  std::mutex mutex = {};
  bool waited = false;
};

}  // namespace lockstep

#pragma once

#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "operation_queue.hpp"

namespace lockstep::comm {

/// A collective in the queue of its group.
class ShmWork final : public c10d::Work {
 public:
  ShmWork(c10d::OpType type, std::shared_ptr<OperationQueue> queue, OperationQueue::Handle entry,
          std::vector<at::Tensor> outputs);

  bool isCompleted() override { return queue_->is_done(entry_); }
  bool isSuccess() const override { return !exception(); }
  std::exception_ptr exception() const override { return queue_->failure_of(entry_); }
  std::vector<at::Tensor> result() override { return outputs_; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::shared_ptr<OperationQueue> queue_;
  OperationQueue::Handle entry_;
  std::vector<at::Tensor> outputs_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace lockstep::comm

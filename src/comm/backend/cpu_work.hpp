#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "comm/backend/operation_queue.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/transport/transport.hpp"

namespace lockstep::comm {

/// An operation of a CpuBackend. Its error says what the other ranks do.
class TrackedWork : public c10d::Work {
 public:
  std::vector<at::Tensor> result() override { return tensors_; }
  std::uint64_t getSequencenumber() const override { return id_.sequence; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() final;

 protected:
  TrackedWork(c10d::OpType type, std::shared_ptr<OperationTracker> tracker, OperationId id,
              std::vector<at::Tensor> tensors)
      : c10d::Work(-1, type), tracker_(std::move(tracker)), id_(id), tensors_(std::move(tensors)) {}

  /// Called once; completes the future when the operation has ended.
  virtual void complete(c10::intrusive_ptr<c10::ivalue::Future> future) = 0;

  const std::shared_ptr<OperationTracker> tracker_;
  const OperationId id_;
  const std::vector<at::Tensor> tensors_;

 private:
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// A collective in its backend's queue.
class CpuWork final : public TrackedWork {
 public:
  CpuWork(c10d::OpType type, std::shared_ptr<OperationQueue> queue, OperationQueue::Handle entry,
          std::shared_ptr<OperationTracker> tracker, OperationId id, std::vector<at::Tensor> outputs);

  bool isCompleted() override { return queue_->is_done(entry_); }
  bool isSuccess() const override { return queue_->is_done(entry_) && !exception(); }
  std::exception_ptr exception() const override { return queue_->failure_of(entry_); }
  /// Ignores its timeout: the operation has its own.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  void complete(c10::intrusive_ptr<c10::ivalue::Future> future) override;

  std::shared_ptr<OperationQueue> queue_;
  OperationQueue::Handle entry_;
};

/// A message. It has ended when its transport or a wait reports it.
class MessageWork final : public TrackedWork {
 public:
  /// `message` is null if the message has already been delivered. `waits` belongs to the backend: its workers
  /// wait for messages whose futures were requested, because Gloo's messages end only in a wait.
  MessageWork(c10d::OpType type, std::unique_ptr<Message> message, std::vector<at::Tensor> tensors,
              std::shared_ptr<OperationTracker> tracker, OperationId id, std::weak_ptr<OperationQueue> waits,
              std::function<void()> arrived);
  ~MessageWork() override { isCompleted(); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override { return message_ ? message_->failure() : nullptr; }
  int sourceRank() const override { return message_ ? message_->source() : -1; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  void complete(c10::intrusive_ptr<c10::ivalue::Future> future) override;

  std::unique_ptr<Message> message_;
  std::weak_ptr<OperationQueue> waits_;
  std::function<void()> arrived_;
  std::once_flag told_;
};

}  // namespace lockstep::comm

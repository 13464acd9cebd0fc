#include "comm/backend/cpu_work.hpp"

#include <system_error>
#include <utility>

#include "core/runtime/rank_counters.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Future = c10::ivalue::Future;
using FuturePointer = c10::intrusive_ptr<Future>;

std::exception_ptr explained(OperationTracker& tracker, const OperationId& id,
                             const std::exception_ptr& failure) {
  try {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      tracker.explain_and_rethrow(id);
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

FuturePointer TrackedWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  complete(future);
  return future_ = std::move(future);
}

CpuWork::CpuWork(c10d::OpType type, std::shared_ptr<OperationQueue> queue, OperationQueue::Handle entry,
                 std::shared_ptr<OperationTracker> tracker, OperationId id, std::vector<at::Tensor> outputs)
    : TrackedWork(type, std::move(tracker), id, std::move(outputs)),
      queue_(std::move(queue)),
      entry_(std::move(entry)) {}

bool CpuWork::wait(std::chrono::milliseconds) {
  const WaitTime time;
  try {
    queue_->wait(entry_);
  } catch (...) {
    tracker_->explain_and_rethrow(id_);
  }
  return true;
}

void CpuWork::complete(FuturePointer future) {
  queue_->when_done(entry_, [future = std::move(future), outputs = tensors_, tracker = tracker_,
                             id = id_](const std::exception_ptr& failure) {
    if (failure) {
      future->setError(explained(*tracker, id, failure));
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
  });
}

MessageWork::MessageWork(c10d::OpType type, std::unique_ptr<Message> message, std::vector<at::Tensor> tensors,
                         std::shared_ptr<OperationTracker> tracker, OperationId id,
                         std::weak_ptr<OperationQueue> waits, std::function<void()> arrived)
    : TrackedWork(type, std::move(tracker), id, std::move(tensors)),
      message_(std::move(message)),
      waits_(std::move(waits)),
      arrived_(std::move(arrived)) {
  isCompleted();
}

bool MessageWork::isCompleted() {
  if (message_ && !message_->is_done()) return false;
  std::call_once(told_, [&] {
    if (!exception()) arrived_();
    tracker_->finish(id_, !exception());
  });
  return true;
}

bool MessageWork::isSuccess() const { return (!message_ || message_->is_done()) && !exception(); }

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  try {
    if (message_) message_->wait(timeout);
  } catch (...) {
    tracker_->explain_and_rethrow(id_);
  }
  return isCompleted();
}

void MessageWork::complete(FuturePointer future) {
  const auto waits = waits_.lock();
  if (!waits) throw UsageError("the future of a message was requested after its group was destroyed");
  const CallerWaits by_a_worker(false);
  waits->add(
      [self = c10::intrusive_ptr<MessageWork>::reclaim_copy(this), future = std::move(future)] {
        try {
          OperationQueue::let_next_begin();
        } catch (const std::system_error&) {
          // No further worker can be started: the next message waits for one that is free.
        }
        try {
          self->wait(kNoTimeout);
          future->markCompleted(c10::IValue(self->result()));
        } catch (...) {
          future->setError(std::current_exception());
        }
      },
      /*urgent=*/true);
}

}  // namespace lockstep::comm

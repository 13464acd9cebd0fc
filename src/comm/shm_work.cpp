#include "shm_work.hpp"

#include <utility>

namespace lockstep::comm {

ShmWork::ShmWork(c10d::OpType type, std::shared_ptr<OperationQueue> queue, OperationQueue::Handle entry,
                 std::vector<at::Tensor> outputs)
    : c10d::Work(-1, type),
      queue_(std::move(queue)),
      entry_(std::move(entry)),
      outputs_(std::move(outputs)) {}

/// The group's own timeout ends every operation, so that the one given here is not needed.
bool ShmWork::wait(std::chrono::milliseconds) {
  queue_->wait(entry_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  queue_->when_done(entry_, [future = future_, outputs = outputs_](const std::exception_ptr& failure) {
    if (failure) {
      future->setError(failure);
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
  });
  return future_;
}

}  // namespace lockstep::comm

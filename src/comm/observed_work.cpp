#include "observed_work.hpp"

#include <utility>

#include "net/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

using Future = c10::ivalue::Future;

std::exception_ptr explained(GroupObserver& observer, const Ticket& ticket,
                             const std::exception_ptr& failure) {
  try {
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      observer.explain_and_rethrow(ticket);
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

ObservedWork::ObservedWork(Pointer inner, std::shared_ptr<GroupObserver> observer, Ticket ticket, Ends ends,
                           std::vector<at::Tensor> message)
    : inner_(std::move(inner)),
      observer_(std::move(observer)),
      ticket_(ticket),
      ends_are_seen_(ends != Ends::unseen),
      message_(std::move(message)) {
  if (ends == Ends::by_future) finish_with_future();
}

/// Some of Gloo's operations have no future (those that reduce and scatter): their end shows by wait().
void ObservedWork::finish_with_future() {
  FuturePointer future;
  try {
    future = inner_->getFuture();
  } catch (const c10::Error&) {
    return;
  }
  future->addCallback([observer = observer_, ticket = ticket_](Future& ended) {
    observer->finish(ticket, !ended.hasError());
  });
}

/// An operation whose end is not seen has none to enter; asking a GPU would throw after an error of the
/// device, and break a capture of its stream. Nobody waits for the answer here, so a failure has no one to go
/// to either.
ObservedWork::~ObservedWork() {
  if (!ends_are_seen_) return;
  try {
    isCompleted();
  } catch (...) {
  }
}

bool ObservedWork::isCompleted() {
  const bool completed = inner_->isCompleted();
  if (completed && ends_are_seen_) observer_->finish(ticket_, inner_->isSuccess());
  return completed;
}

bool ObservedWork::wait(std::chrono::milliseconds timeout) {
  try {
    const bool result = message_.empty() ? inner_->wait(timeout) : wait_for_inner(timeout);
    if (ends_are_seen_) observer_->finish(ticket_, true);
    return result;
  } catch (...) {
    observer_->explain_and_rethrow(ticket_);
  }
}

/// Gloo's messages end for one who waits, and once: a second waits for the first.
bool ObservedWork::wait_for_inner(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(message_mutex_);
  if (message_failure_) std::rethrow_exception(message_failure_);
  if (message_ended_) return true;
  try {
    message_ended_ = inner_->wait(timeout);
  } catch (...) {
    message_failure_ = std::current_exception();
    throw;
  }
  return message_ended_;
}

/// No backend gives one for what it receives. A thread waits, which the timeout ends at the latest.
ObservedWork::FuturePointer ObservedWork::future_of_a_message() {
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  net::signal_free_thread([self = Pointer::reclaim_copy(this), future] {
    try {
      self->wait(kNoTimeout);
      future->markCompleted(c10::IValue(self->result()));
    } catch (...) {
      future->setError(std::current_exception());
    }
  }).detach();
  return future;
}

/// Another future behind the backend's own, because what it says of a failure is to be replaced. A future of
/// a GPU is passed on as it is: it carries the streams' events.
ObservedWork::FuturePointer ObservedWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  if (!message_.empty() && ends_are_seen_) return future_ = future_of_a_message();
  const FuturePointer inner = inner_->getFuture();
  if (!ends_are_seen_ || !inner->devices().empty()) return future_ = inner;
  future_ = c10::make_intrusive<Future>(inner->elementType());
  inner->addCallback([outer = future_, observer = observer_, ticket = ticket_](Future& ended) {
    if (ended.hasError()) {
      outer->setError(explained(*observer, ticket, ended.exception_ptr()));
    } else {
      observer->finish(ticket, true);
      outer->markCompleted(ended.value());
    }
  });
  return future_;
}

}  // namespace lockstep::comm

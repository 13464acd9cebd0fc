#include "observed_work.hpp"

#include <utility>

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

ObservedWork::ObservedWork(Pointer inner, std::shared_ptr<GroupObserver> observer, Ticket ticket, Ends ends)
    : inner_(std::move(inner)),
      observer_(std::move(observer)),
      ticket_(ticket),
      ends_are_seen_(ends != Ends::unseen) {
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

ObservedWork::~ObservedWork() { isCompleted(); }

bool ObservedWork::isCompleted() {
  const bool completed = inner_->isCompleted();
  if (completed && ends_are_seen_) observer_->finish(ticket_, inner_->isSuccess());
  return completed;
}

bool ObservedWork::wait(std::chrono::milliseconds timeout) {
  try {
    const bool result = inner_->wait(timeout);
    if (ends_are_seen_) observer_->finish(ticket_, true);
    return result;
  } catch (...) {
    observer_->explain_and_rethrow(ticket_);
  }
}

/// Another future behind the backend's own, because what it says of a failure is to be replaced. A future of
/// a GPU is passed on as it is: it carries the streams' events.
ObservedWork::FuturePointer ObservedWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
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

#pragma once

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "group_observer.hpp"

namespace lockstep::comm {

/// How the end of an operation shows.
enum class Ends {
  /// Not at all, as on a GPU: its Work ends when a stream has been told to wait.
  unseen,
  /// By wait() and isCompleted() of its Work.
  by_wait,
  /// By the future of its Work as well, at once, where it has one. Messages have none.
  by_future,
};

/// A Work whose end is entered, and whose failure says what the other ranks do. Whoever looks first, by
/// wait(), by a future or by isCompleted(), makes the entry.
class ObservedWork final : public c10d::Work {
 public:
  using Pointer = c10::intrusive_ptr<c10d::Work>;
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

  /// `message`: the tensors of a message, else none.
  ObservedWork(Pointer inner, std::shared_ptr<GroupObserver> observer, Ticket ticket, Ends ends,
               std::vector<at::Tensor> message = {});
  ~ObservedWork() override;

  bool isCompleted() override;
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return message_.empty() ? inner_->result() : message_; }
  void synchronize() override { inner_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  FuturePointer getFuture() override;
  FuturePointer getFutureResult() override { return inner_->getFutureResult(); }
  float getDuration() const override { return inner_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return ticket_.sequence; }

 private:
  void finish_with_future();
  bool wait_for_inner(std::chrono::milliseconds timeout);
  FuturePointer future_of_a_message();

  Pointer inner_;
  std::shared_ptr<GroupObserver> observer_;
  Ticket ticket_;
  bool ends_are_seen_;
  std::vector<at::Tensor> message_;
  std::mutex message_mutex_;
  std::exception_ptr message_failure_;
  bool message_ended_ = false;
  std::mutex future_mutex_;
  FuturePointer future_;
};

}  // namespace lockstep::comm

#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "shm/group.hpp"

namespace lockstep::comm {

/// The receives of a group that have not ended, in the order in which they were called: of two that the same
/// message would suit, the first gets it, whoever waits. Any thread may call any method.
class Receives {
 public:
  struct Request {
    at::Tensor tensor;
    shm::Elements elements;
    int source;
    int tag;
    bool done = false;
    int from = -1;
    std::exception_ptr failure;
  };
  using Handle = std::shared_ptr<Request>;

  explicit Receives(std::shared_ptr<shm::Group> group) : group_(std::move(group)) {}

  Handle add(const at::Tensor& tensor, shm::Elements elements, int source, int tag);
  /// Takes what has come, for this request and those before it; whether this one has ended.
  bool progress(const Handle& request);
  /// Returns when it has ended; throws what it threw.
  void wait(const Handle& request);

 private:
  void take(Request& request);

  std::shared_ptr<shm::Group> group_;
  std::mutex mutex_;
  std::list<Handle> pending_;
};

class ReceiveWork final : public c10d::Work {
 public:
  ReceiveWork(c10d::OpType type, std::shared_ptr<Receives> receives, Receives::Handle request)
      : c10d::Work(-1, type), receives_(std::move(receives)), request_(std::move(request)) {}

  bool isCompleted() override { return receives_->progress(request_); }
  bool isSuccess() const override { return receives_->progress(request_) && !request_->failure; }
  std::exception_ptr exception() const override { return request_->failure; }
  int sourceRank() const override { return request_->from; }
  std::vector<at::Tensor> result() override { return {request_->tensor}; }
  bool wait(std::chrono::milliseconds = kNoTimeout) override {
    receives_->wait(request_);
    return true;
  }

 private:
  std::shared_ptr<Receives> receives_;
  Receives::Handle request_;
};

}  // namespace lockstep::comm

#include <fmt/core.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/transport/tensor_memory.hpp"
#include "comm/transport/transport.hpp"
#include "shm/group.hpp"

namespace lockstep::comm {
namespace {

/// The receives of a group that have not ended, in the order in which they were called: of two that the same
/// message would suit, the first gets it, whoever waits.
class PendingReceives {
 public:
  struct Request {
    at::Tensor tensor;
    shm::Elements elements;
    int source;
    int tag;
    bool done = false;
    int from = -1;
    std::exception_ptr failure = nullptr;
  };
  using Handle = std::shared_ptr<Request>;

  explicit PendingReceives(std::shared_ptr<shm::Group> group) : group_(std::move(group)) {}

  Handle add(Request request) {
    auto handle = std::make_shared<Request>(std::move(request));
    const std::lock_guard lock(mutex_);
    pending_.push_back(handle);
    return handle;
  }

  /// Takes what has come, for this request and those before it; whether this one has ended.
  bool progress(const Handle& request) {
    const std::lock_guard lock(mutex_);
    std::vector<const Request*> unserved;
    for (auto next = pending_.begin(); !request->done && next != pending_.end();) {
      // A message that comes meanwhile is the earlier request's.
      const bool must_wait = std::any_of(unserved.begin(), unserved.end(),
                                         [&](const Request* earlier) { return compete(*earlier, **next); });
      if (!must_wait) take(**next);
      if (!must_wait && !(*next)->done) unserved.push_back(next->get());
      next = (*next)->done ? pending_.erase(next) : std::next(next);
    }
    return request->done;
  }

  void wait(const Handle& request) {
    const auto what = [&] {
      const std::string from =
          request->source < 0 ? "recv from any rank" : fmt::format("recv from member {}", request->source);
      return fmt::format("{}, tag {}", from, request->tag);
    };
    if (!progress(request))
      group_->p2p_queue().wait_for_message(
          request->source, [&] { return progress(request); }, what);
    if (request->failure) std::rethrow_exception(request->failure);
  }

 private:
  /// Whether a message may suit both.
  static bool compete(const Request& one, const Request& another) {
    const bool any = one.source < 0 || another.source < 0;
    return one.tag == another.tag && (any || one.source == another.source);
  }

  void take(Request& request) {
    try {
      const auto from = group_->p2p_queue().try_receive(request.source, request.tag,
                                                        request.tensor.data_ptr(), request.elements);
      if (!from) return;
      request.from = *from;
    } catch (...) {
      request.failure = std::current_exception();
    }
    request.done = true;
  }

  std::shared_ptr<shm::Group> group_;
  std::mutex mutex_;
  std::list<Handle> pending_;
};

class ReceivedMessage final : public Message {
 public:
  ReceivedMessage(std::shared_ptr<PendingReceives> receives, PendingReceives::Handle request)
      : receives_(std::move(receives)), request_(std::move(request)) {}

  bool is_done() override { return receives_->progress(request_); }
  void wait(std::chrono::milliseconds) override { receives_->wait(request_); }
  std::exception_ptr failure() const override { return request_->failure; }
  int source() const override { return request_->from; }

 private:
  std::shared_ptr<PendingReceives> receives_;
  PendingReceives::Handle request_;
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<shm::Group> group)
      : group_(std::move(group)), receives_(std::make_shared<PendingReceives>(group_)) {}

  const char* name() const override { return "shm"; }
  shm::Group* memory() const override { return group_.get(); }

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    shm::all_reduce(group_->step_sync(), *group_->heap(), data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    shm::reduce(group_->step_sync(), data, elements, reduction, root);
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    shm::reduce_scatter(group_->step_sync(), inputs, output, elements, reduction);
  }
  void broadcast(void* data, Elements elements, int root) override {
    shm::broadcast(group_->step_sync(), data, elements, root);
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    shm::all_gather(group_->step_sync(), input, outputs, elements);
  }
  void gather(const void* input, Buffers outputs, Elements elements, int root) override {
    shm::gather(group_->step_sync(), input, outputs, elements, root);
  }
  void scatter(ConstBuffers inputs, void* output, Elements elements, int root) override {
    shm::scatter(group_->step_sync(), inputs, output, elements, root);
  }
  void all_to_all(Parts inputs, Parts outputs, shm::Dtype dtype) override {
    shm::all_to_all(group_->step_sync(), inputs, outputs, dtype);
  }
  void barrier() override { shm::barrier(group_->step_sync()); }

  /// Done at once: the message is copied to where the receiver finds it.
  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override {
    group_->p2p_queue().send(destination, tag, tensor.data_ptr(), elements_of("send", tensor));
    return nullptr;
  }
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override {
    return std::make_unique<ReceivedMessage>(
        receives_, receives_->add({tensor, elements_of("recv", tensor), source, tag}));
  }

 private:
  std::shared_ptr<shm::Group> group_;
  std::shared_ptr<PendingReceives> receives_;
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<shm::Group> group) {
  return std::make_unique<ShmTransport>(std::move(group));
}

}  // namespace lockstep::comm

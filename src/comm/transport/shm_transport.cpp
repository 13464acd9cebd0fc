#include "comm/transport/shm_transport.hpp"

#include <utility>

#include "comm/transport/tensor_memory.hpp"
#include "shm/group.hpp"

namespace lockstep::comm {
namespace {

class ReceivedMessage final : public Message {
 public:
  ReceivedMessage(std::shared_ptr<shm::Group> group, shm::P2PQueue::Handle receive)
      : group_(std::move(group)), receive_(std::move(receive)) {}

  bool is_done() override { return group_->p2p_queue().is_done(receive_); }
  void wait(std::chrono::milliseconds) override { group_->p2p_queue().wait(receive_); }
  std::exception_ptr failure() const override { return group_->p2p_queue().failure_of(receive_); }
  int source() const override { return group_->p2p_queue().source_of(receive_); }

 private:
  std::shared_ptr<shm::Group> group_;
  shm::P2PQueue::Handle receive_;
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<shm::Group> group) : group_(std::move(group)) {}

  const char* name() const override { return "shm"; }
  shm::Group* memory() const override { return group_.get(); }

  void run(const shm::Collective& collective) override {
    shm::run(group_->step_sync(), *group_->heap(), collective);
  }

  /// Completes immediately: the message is copied to a queue in this rank's heap.
  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override {
    group_->p2p_queue().send(destination, tag, tensor.data_ptr(), elements_of("send", tensor));
    return nullptr;
  }
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override {
    auto receive = group_->p2p_queue().receive({.source = source,
                                                .tag = tag,
                                                .data = tensor.data_ptr(),
                                                .elements = elements_of("recv", tensor),
                                                .owner = std::make_shared<at::Tensor>(tensor)});
    return std::make_unique<ReceivedMessage>(group_, std::move(receive));
  }
  void abort(const std::string& reason) override { group_->abort(reason); }

 private:
  std::shared_ptr<shm::Group> group_;
};

}  // namespace

std::unique_ptr<Transport> shm_transport(std::shared_ptr<shm::Group> group) {
  return std::make_unique<ShmTransport>(std::move(group));
}

}  // namespace lockstep::comm

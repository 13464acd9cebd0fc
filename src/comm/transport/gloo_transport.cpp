#include "comm/transport/gloo_transport.hpp"

#include <mutex>
#include <utility>

#include "comm/errors.hpp"
#include "comm/transport/tensor_memory.hpp"

namespace lockstep::comm {
namespace {

/// Gloo's messages end for one who waits, and once: a second waits for the first.
class GlooMessage final : public Message {
 public:
  GlooMessage(std::shared_ptr<GlooConnection> connection, GlooConnection::WorkPointer work)
      : connection_(std::move(connection)), work_(std::move(work)) {}

  bool is_done() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && (ended_ || failure_);
  }
  void wait(std::chrono::milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (ended_) return;
    try {
      connection_->wait(*work_, timeout);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    ended_ = true;
  }
  std::exception_ptr failure() const override { return failure_; }
  int source() const override { return work_->sourceRank(); }

 private:
  std::shared_ptr<GlooConnection> connection_;
  GlooConnection::WorkPointer work_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool ended_ = false;
};

/// Parts of an all_to_all as slices of one piece of memory: their own, or a copy of it.
class Slices {
 public:
  Slices(Transport::Parts parts, std::size_t element_size) : parts_(parts) {
    std::size_t bytes = 0;
    for (const auto& part : parts) {
      in_one_piece_ = in_one_piece_ && static_cast<std::byte*>(parts.front().data) + bytes == part.data;
      sizes_.push_back(static_cast<std::int64_t>(part.count * element_size));
      bytes += part.count * element_size;
    }
    if (!in_one_piece_) copy_.resize(bytes);
  }

  void* data() { return in_one_piece_ ? parts_.front().data : copy_.data(); }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }

  void copy_in() {
    for_each_copied([](std::byte* copy, void* part, std::size_t bytes) { std::memcpy(copy, part, bytes); });
  }
  void copy_out() {
    for_each_copied([](std::byte* copy, void* part, std::size_t bytes) { std::memcpy(part, copy, bytes); });
  }

 private:
  template <class Action>
  void for_each_copied(const Action& action) {
    if (in_one_piece_) return;
    std::size_t start = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(sizes_[i]);
      if (bytes > 0) action(copy_.data() + start, parts_[i].data, bytes);
      start += bytes;
    }
  }

  Transport::Parts parts_;
  std::vector<std::int64_t> sizes_;
  bool in_one_piece_ = true;
  std::vector<std::byte> copy_;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(std::unique_ptr<GlooConnection> connection, std::unique_ptr<FingerprintExchange> fingerprints)
      : connection_(std::move(connection)), fingerprints_(std::move(fingerprints)) {}

  const char* name() const override { return "gloo"; }
  int concurrency() const override { return 2; }

  void begin(const CollectiveCall& call) override {
    timeout() = call.timeout;
    if (!fingerprints_) return;
    fingerprints_->announce(call.text(), call.timeout);
    fingerprints_->agree(call.timeout);
  }

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    connection_->all_reduce(data, elements, reduction, timeout());
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    connection_->reduce(data, elements, reduction, root, timeout());
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    const std::size_t bytes = elements.bytes();
    std::vector<std::byte> all(inputs.size() * bytes);
    for (std::size_t r = 0; r < inputs.size() && bytes > 0; ++r)
      std::memcpy(all.data() + r * bytes, inputs[r], bytes);
    connection_->all_reduce(all.data(), {elements.count * inputs.size(), elements.dtype}, reduction,
                            timeout());
    if (bytes > 0)
      std::memcpy(output, all.data() + static_cast<std::size_t>(connection_->rank()) * bytes, bytes);
  }
  void broadcast(void* data, Elements elements, int root) override {
    connection_->broadcast(data, elements.bytes(), root, timeout());
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    connection_->all_gather(input, outputs, elements.bytes(), timeout());
  }
  void gather(const void* input, Buffers outputs, Elements elements, int root) override {
    connection_->gather(input, outputs, elements.bytes(), root, timeout());
  }
  void scatter(ConstBuffers inputs, void* output, Elements elements, int root) override {
    connection_->scatter(inputs, output, elements.bytes(), root, timeout());
  }
  void all_to_all(Parts inputs, Parts outputs, shm::Dtype dtype) override {
    Slices from(inputs, shm::size_of(dtype)), to(outputs, shm::size_of(dtype));
    from.copy_in();
    connection_->all_to_all(from.data(), to.data(), from.sizes(), to.sizes(), timeout());
    to.copy_out();
  }
  void barrier() override { connection_->barrier(timeout()); }

  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override {
    return std::make_unique<GlooMessage>(connection_, connection_->send(tensor, destination, tag));
  }
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override {
    return std::make_unique<GlooMessage>(connection_, connection_->recv(tensor, source, tag));
  }

 private:
  /// Of the collective that this thread has begun.
  static std::chrono::milliseconds& timeout() {
    thread_local std::chrono::milliseconds timeout{0};
    return timeout;
  }

  std::shared_ptr<GlooConnection> connection_;
  std::unique_ptr<FingerprintExchange> fingerprints_;  // Null: nothing is verified.
};

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(std::unique_ptr<GlooConnection> connection,
                                               std::unique_ptr<FingerprintExchange> fingerprints) {
  return std::make_unique<GlooTransport>(std::move(connection), std::move(fingerprints));
}

}  // namespace lockstep::comm

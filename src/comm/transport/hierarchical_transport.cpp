#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "comm/errors.hpp"
#include "comm/transport/gloo_transport.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using shm::Elements;
using shm::Operation;
using shm::Reduction;

/// A rank that ends is noticed by its neighbours, who tell why, within half a second.
constexpr std::chrono::milliseconds kNotice{1500};
/// How often the host's own ranks are looked at meanwhile: connections close before their process has ended.
constexpr std::chrono::milliseconds kLook{50};

class GlooInterHostTransport final : public shm::InterHostTransport {
 public:
  GlooInterHostTransport(std::unique_ptr<GlooTransport> gloo,
                         std::unique_ptr<FingerprintExchange> fingerprints, InterHostPlace place,
                         FirstFailure failure)
      : gloo_(std::move(gloo)),
        fingerprints_(std::move(fingerprints)),
        place_(std::move(place)),
        failure_(std::move(failure)) {}

  void announce(const shm::Call& call) override {
    call_ = shm::describe(call);
    if (fingerprints_) run([&] { fingerprints_->announce(call_); });
  }
  void agree() override {
    if (fingerprints_) run([&] { fingerprints_->agree(); });
  }

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    run([&] { gloo_->all_reduce(data, elements, reduction); });
    divide(data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    run([&] { gloo_->reduce(data, elements, reduction, root); });
    divide(data, elements, reduction);
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    run([&] { gloo_->broadcast(data, {bytes, shm::Dtype::bytes}, root); });
  }
  void all_gather(const void* input, void* output, std::size_t bytes) override {
    run([&] { gloo_->all_gather(input, output, bytes); });
  }
  void beside(const std::function<void()>& body) override {
    try {
      body();
    } catch (...) {
      explain(call_);
    }
  }
  /// The reason first: a rank that finds the connection closed reads it.
  void abandon(const char* failure_text) noexcept override {
    if (std::exchange(abandoned_, true)) return;
    failure_.post(failure_text);
    if (fingerprints_) fingerprints_->close();
    try {
      gloo_->close();
    } catch (const std::exception&) {
      // The connections close with the process at the latest.
    }
  }

 private:
  void divide(void* data, Elements elements, Reduction reduction) const {
    if (reduction == Reduction::avg) view_of(data, elements).div_(place_.ranks);
  }
  template <class Body>
  void run(const Body& body) {
    try {
      body();
    } catch (const Error&) {
      throw;  // The hosts do not call the same, and all know it.
    } catch (...) {
      explain(fmt::format("{} between {}", call_, fmt::join(place_.names.callers, ", ")));
    }
  }
  [[noreturn]] void explain(const std::string& what) {
    try {
      rethrow_as_communication_error(fmt::format("{}: {} failed", place_.names.who, what));
    } catch (const TimeoutError& error) {
      throw TimeoutError(error.what(), error.missing_ranks());
    } catch (const CommunicationError& error) {
      const std::string reason = reason_of_failure();
      throw CommunicationError(reason.empty() ? error.what() : fmt::format("{} [{}]", reason, error.what()));
    }
  }

  /// What a rank of this host has ended by, or what another host has posted; "": neither shows in time.
  std::string reason_of_failure() const {
    for (auto waited = kLook; waited <= kNotice; waited += kLook) {
      if (std::string loss = place_.loss_on_this_host(); !loss.empty()) return loss;
      if (std::string posted = failure_.read(kLook); !posted.empty()) return posted;
    }
    return "";
  }

  std::unique_ptr<GlooTransport> gloo_;
  std::unique_ptr<FingerprintExchange> fingerprints_;  // Null: nothing is verified.
  InterHostPlace place_;
  FirstFailure failure_;
  std::string call_;  // What was announced last.
  bool abandoned_ = false;
};

class HierarchicalTransport final : public Transport {
 public:
  HierarchicalTransport(std::shared_ptr<shm::Group> group,
                        std::unique_ptr<shm::HierarchicalCollectives> collectives,
                        std::unique_ptr<Transport> flat)
      : group_(std::move(group)), collectives_(std::move(collectives)), flat_(std::move(flat)) {}

  const char* name() const override { return "shm+gloo"; }
  shm::Group* memory() const override { return group_.get(); }

  void begin(const CollectiveCall& call) override { flat_->begin(call); }
  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    collectives_->all_reduce(data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    collectives_->reduce(data, elements, reduction, root);
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    collectives_->reduce_scatter(inputs, output, elements, reduction);
  }
  void broadcast(void* data, Elements elements, int root) override {
    collectives_->broadcast(data, elements, root);
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    collectives_->all_gather(input, outputs, elements);
  }
  void gather(const void* input, Buffers outputs, Elements elements, int root) override {
    collectives_->elsewhere(shm::call_of(Operation::gather, elements, Reduction::none, root),
                            [&] { flat_->gather(input, outputs, elements, root); });
  }
  void scatter(ConstBuffers inputs, void* output, Elements elements, int root) override {
    collectives_->elsewhere(shm::call_of(Operation::scatter, elements, Reduction::none, root),
                            [&] { flat_->scatter(inputs, output, elements, root); });
  }
  void all_to_all(Parts inputs, Parts outputs, shm::Dtype dtype) override {
    collectives_->elsewhere(shm::call_of(Operation::all_to_all, {0, dtype}),
                            [&] { flat_->all_to_all(inputs, outputs, dtype); });
  }
  void barrier() override { collectives_->barrier(); }

  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override {
    return flat_->send(tensor, destination, tag);
  }
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override {
    return flat_->recv(tensor, source, tag);
  }

 private:
  std::shared_ptr<shm::Group> group_;
  std::unique_ptr<shm::HierarchicalCollectives> collectives_;
  std::unique_ptr<Transport> flat_;
};

}  // namespace

std::unique_ptr<shm::InterHostTransport> make_gloo_inter_host_transport(
    std::unique_ptr<GlooTransport> gloo, std::unique_ptr<FingerprintExchange> fingerprints,
    InterHostPlace place, FirstFailure failure) {
  return std::make_unique<GlooInterHostTransport>(std::move(gloo), std::move(fingerprints), std::move(place),
                                                  std::move(failure));
}

std::unique_ptr<Transport> make_hierarchical_transport(
    std::shared_ptr<shm::Group> group, std::unique_ptr<shm::HierarchicalCollectives> collectives,
    std::unique_ptr<Transport> flat) {
  return std::make_unique<HierarchicalTransport>(std::move(group), std::move(collectives), std::move(flat));
}

}  // namespace lockstep::comm

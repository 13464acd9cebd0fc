#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "comm/errors.hpp"
#include "comm/transport/gloo_transport.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = GlooConnection::Milliseconds;
using shm::Elements;
using shm::Reduction;

/// A rank that ends is noticed by its neighbours, who tell why, within half a second.
constexpr Milliseconds kNotice{1500};
/// The connection's own.
constexpr Milliseconds kTimeout{0};

class GlooInterHostTransport final : public shm::InterHostTransport {
 public:
  GlooInterHostTransport(std::unique_ptr<GlooConnection> connection,
                         std::unique_ptr<FingerprintExchange> fingerprints, InterHostPlace place,
                         FirstFailure failure)
      : connection_(std::move(connection)),
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
    run([&] { connection_->all_reduce(data, elements, reduction, kTimeout); });
    divide(data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    run([&] { connection_->reduce(data, elements, reduction, root, kTimeout); });
    divide(data, elements, reduction);
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    run([&] { connection_->broadcast(data, bytes, root, kTimeout); });
  }
  void all_gather(const void* input, void* output, std::size_t bytes) override {
    run([&] { connection_->all_gather(input, output, bytes, kTimeout); });
  }
  void beside(const std::function<void()>& body) override {
    try {
      body();
    } catch (...) {
      explain(call_);
    }
  }
  /// The reason first: whoever finds the connection closed looks for it.
  void abandon(const char* failure_text) noexcept override {
    if (std::exchange(abandoned_, true)) return;
    failure_.post(failure_text);
    if (fingerprints_) fingerprints_->close();
    try {
      connection_->close();
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
      const std::string reason = failure_.read(kNotice);
      throw CommunicationError(reason.empty() ? error.what() : fmt::format("{} [{}]", reason, error.what()));
    }
  }

  std::unique_ptr<GlooConnection> connection_;
  std::unique_ptr<FingerprintExchange> fingerprints_;  // Null: nothing is verified.
  InterHostPlace place_;
  FirstFailure failure_;
  std::string call_;  // What was announced last.
  bool abandoned_ = false;
};

}  // namespace

std::unique_ptr<shm::InterHostTransport> make_gloo_inter_host_transport(
    std::unique_ptr<GlooConnection> connection, std::unique_ptr<FingerprintExchange> fingerprints,
    InterHostPlace place, FirstFailure failure) {
  return std::make_unique<GlooInterHostTransport>(std::move(connection), std::move(fingerprints),
                                                  std::move(place), std::move(failure));
}

}  // namespace lockstep::comm

#include "comm/transport/provisional_transport.hpp"

#include <fmt/core.h>

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

void LonelySetUp::refuse(const std::string& what) const {
  const std::string text = fmt::format(
      "{} replaces a lost process, and the others are past their set-up: nobody would answer its {} before "
      "run_elastic(). Move it into the body of run_elastic(), or compute its result on every rank",
      who_, what);
  if (report_) report_(text);
  throw UsageError(text);
}

namespace {

class ProvisionalTransport final : public Transport {
 public:
  explicit ProvisionalTransport(std::shared_ptr<const LonelySetUp> set_up) : set_up_(std::move(set_up)) {}

  const char* name() const override { return "none"; }
  void begin(const CollectiveCall& call) override { set_up_->refuse(call.meta.name); }
  void run(const shm::Collective& /*collective*/) override { set_up_->refuse("collective"); }
  std::unique_ptr<Message> send(const at::Tensor& /*tensor*/, int /*destination*/, int /*tag*/) override {
    set_up_->refuse("send");
  }
  std::unique_ptr<Message> recv(const at::Tensor& /*tensor*/, int /*source*/, int /*tag*/) override {
    set_up_->refuse("recv");
  }
  /// Nothing is under way.
  void abort(const std::string& /*reason*/) override {}

 private:
  std::shared_ptr<const LonelySetUp> set_up_;
};

}  // namespace

std::unique_ptr<Transport> provisional_transport(std::shared_ptr<const LonelySetUp> set_up) {
  return std::make_unique<ProvisionalTransport>(std::move(set_up));
}

}  // namespace lockstep::comm

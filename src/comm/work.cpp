#include "lockstep/comm/work.hpp"

#include <fmt/format.h>

#include <utility>

#include "comm/errors.hpp"
#include "comm/process_group_impl.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

std::string Operation::describe() const {
  std::string text = fmt::format("{}: {}", *who, name);
  if (number > 0) text += fmt::format(" #{}", number);
  if (tensor.defined()) {
    text += fmt::format(" ({} [{}], {})", c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "), tensor.device().str());
  }
  return text + " failed";
}

Work::Impl::Impl(c10::intrusive_ptr<c10d::Work> work, Operation operation, std::function<void()> finish)
    : work_(std::move(work)), operation_(std::move(operation)), finish_(std::move(finish)) {}

void Work::Impl::wait() {
  const std::lock_guard lock(mutex_);
  if (waited_) return;
  {
    const Heartbeat::Waiting beat(process_heartbeat(), operation_.name,
                                  static_cast<std::uint64_t>(operation_.number));
    comm::translated([&] { work_->wait(); }, [&] { return operation_.describe(); });
  }
  if (finish_) finish_();
  waited_ = true;
}

Work::Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

void Work::wait() { impl_->wait(); }

bool Work::is_completed() const { return impl_->is_completed(); }

int Work::source_rank() const { return impl_->source_rank(); }

}  // namespace lockstep

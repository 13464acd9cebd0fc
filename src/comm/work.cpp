#include "lockstep/comm/work.hpp"

#include <utility>

#include "comm/errors.hpp"
#include "comm/work_impl.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

Work::Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

void Work::wait() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->waited) return;
  {
    const WorkDescription& description = impl_->description;
    const Heartbeat::Waiting beat(process_heartbeat(), description.name,
                                  static_cast<std::uint64_t>(description.number));
    comm::translated([&] { impl_->work->wait(); }, [&] { return description.describe(); });
  }
  if (impl_->finish) impl_->finish();
  impl_->waited = true;
}

bool Work::is_completed() const { return impl_->work->isCompleted(); }

int Work::source_rank() const { return impl_->work->sourceRank(); }

}  // namespace lockstep

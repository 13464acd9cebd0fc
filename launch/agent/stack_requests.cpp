#include "agent/stack_requests.hpp"

#include <utility>

namespace lockstep::launch {

void StackRequests::ask(const std::vector<StackTarget>& targets, const Environment& environment,
                        std::optional<std::int64_t> node, Time now) {
  if (!dump_) dump_.emplace(targets, environment, now);
  if (node) {
    answer_.nodes.insert(*node);
  } else {
    answer_.here = true;
  }
}

StackRequests::Time StackRequests::deadline() const { return dump_ ? dump_->next_look() : Time::max(); }

std::optional<StackRequests::Answer> StackRequests::work(Time now) {
  if (!dump_ || now < dump_->next_look() || !dump_->work(now)) return std::nullopt;
  return finish();
}

std::optional<StackRequests::Answer> StackRequests::finish() {
  if (!dump_) return std::nullopt;
  answer_.text = stacks_report(dump_->take());
  dump_.reset();
  return std::exchange(answer_, {});
}

}  // namespace lockstep::launch

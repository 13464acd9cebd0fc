#include "comm/first_failure.hpp"

#include <utility>

#include "comm/group_key_value_store.hpp"

namespace lockstep::comm {

FirstFailure::FirstFailure(const Store& store, GroupInfo members)
    : session_(key_value_store(bounded(store, coordination::kWaitTimes.first_failure_answer),
                               coordination::kWaitTimes.first_failure_answer),
               "", std::move(members)) {}

void FirstFailure::post(const std::string& reason) const noexcept {
  try {
    session_.post_failure(reason);
  } catch (const std::exception&) {
    // The store is gone or unreachable, also for those who would read the reason.
  }
}

std::string FirstFailure::read(std::chrono::milliseconds limit) const noexcept {
  try {
    const auto failure = session_.await_failure(limit);
    return failure ? failure->text : "";
  } catch (const std::exception&) {
    return "";  // In that case nobody could post either.
  }
}

}  // namespace lockstep::comm

#include "coordination/rank_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "coordination/interruption.hpp"
#include "coordination/json_lines.hpp"
#include "core/process_identity.hpp"
#include "core/text.hpp"

namespace lockstep::coordination {
namespace {

constexpr const char* kArrived = "/arrived";
constexpr const char* kCount = "/count";
constexpr const char* kComplete = "/complete";
constexpr const char* kFailure = "failure";
constexpr const char* kFailureRead = "failure/read";

}  // namespace

RankSession::RankSession(std::shared_ptr<KeyValueStore> store, std::string prefix, GroupInfo members,
                         WaitTimes times, Now now)
    : store_(std::move(store)),
      prefix_(std::move(prefix)),
      members_(std::move(members)),
      times_(times),
      now_(std::move(now)) {}

bool RankSession::arrive(const std::string& point) const {
  store_->append(key(point + kArrived), fmt::format("{},", members_.rank));
  return count(point, members_.size());
}

bool RankSession::count(const std::string& point, int expected) const {
  if (store_->add(key(point + kCount), 1) != expected) return false;
  release(point);
  return true;
}

void RankSession::release(const std::string& point) const { store_->set(key(point + kComplete), "1"); }

bool RankSession::await(const std::string& point, const Wait& wait) const {
  const std::string complete = key(point + kComplete);
  const auto begun = now();
  const bool looks = wait.go_on || is_interruptible();
  const Milliseconds look = is_interruptible() ? std::min(wait.look, kInterruptionLook) : wait.look;
  for (;;) {
    throw_if_interrupted();
    const Milliseconds left = left_until(wait.deadline);
    if (store_->wait(complete, looks ? std::min(left, look) : left)) return true;
    const auto waited = std::chrono::duration_cast<Milliseconds>(now() - begun);
    // A store that returns early without a probe is not asked again and again.
    if ((!looks && waited < left) || left_until(wait.deadline) == Milliseconds(0)) return false;
    if (wait.go_on && !wait.go_on(waited)) return false;
  }
}

bool RankSession::is_complete(const std::string& point) const {
  return store_->contains(key(point + kComplete));
}

std::vector<int> RankSession::missing(const std::string& point) const {
  std::set<int> here;
  const std::string list = key(point + kArrived);
  const std::string arrivals = store_->contains(list) ? store_->get(list) : "";
  for (const auto member : split_at_commas(arrivals)) here.insert(parse_whole_number(member).value_or(-1));
  std::vector<int> result;
  for (int member = 0; member < members_.size(); ++member) {
    if (!here.contains(member)) result.push_back(member);
  }
  return result;
}

int RankSession::arrived(const std::string& point) const {
  return static_cast<int>(store_->add(key(point + kCount), 0));
}

void RankSession::erase(const std::string& point) const {
  for (const char* part : {kArrived, kCount, kComplete}) store_->erase(key(point + part));
}

void RankSession::post_failure(const std::string& text) const {
  append_line(*store_, key(kFailure),
              {{"rank", members_.rank}, {"host", this_process().host}, {"text", text}});
}

std::optional<Failure> RankSession::failure() const {
  const auto lines = read_lines(*store_, key(kFailure));
  if (lines.empty()) return std::nullopt;
  const auto& first = lines.front();
  return Failure{first.at("rank").get<int>(), first.at("host").get<std::string>(),
                 first.at("text").get<std::string>()};
}

std::optional<Failure> RankSession::await_failure(Milliseconds limit) const {
  if (!store_->wait(key(kFailure), limit)) return std::nullopt;
  return failure();
}

std::optional<Failure> RankSession::read_failure() const {
  auto first = failure();
  if (first && first->rank == members_.rank) return std::nullopt;
  if (first) count_as_read();
  return first;
}

/// Once, however often this rank looks.
void RankSession::count_as_read() const {
  if (!has_read_->exchange(true)) count(kFailureRead, members_.size() - 1);
}

void RankSession::stay_until_read(const std::function<bool(Milliseconds)>& go_on) const {
  if (members_.size() == 1) return;
  // Who fails after another rank will not come to read why.
  if (const auto first = failure(); first && first->rank != members_.rank) count_as_read();
  await(kFailureRead, {.deadline = now() + times_.farewell, .look = times_.look, .go_on = go_on});
}

Milliseconds RankSession::left_until(net::Deadline deadline) const {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - now());
  return std::clamp(left, Milliseconds(0), Milliseconds(std::chrono::hours(24)));
}

}  // namespace lockstep::coordination

#include "train/named_barrier.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "comm/group_key_value_store.hpp"
#include "coordination/message_timer.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "core/time.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

using coordination::Milliseconds;

constexpr Milliseconds kLongestLook = std::chrono::seconds(1);
/// Ranks that are in a collective never look here, so a rank that failed does not stay longer for them.
constexpr coordination::WaitTimes kTimes{.farewell = std::chrono::seconds(2)};

}  // namespace

NamedBarrier::NamedBarrier(const Store& store, const ProcessGroup& group, Milliseconds warn_after)
    : session_(comm::key_value_store(store), "", GroupInfo::whole(group.rank(), group.size()), kTimes),
      timeout_(group.timeout()),
      warn_after_(warn_after),
      barrier_(comm::make_session(store.with_prefix("barriers"), session_.members())) {}

void NamedBarrier::wait(const std::string& name) {
  throw_if_failed(name);
  if (session_.members().size() == 1) return;
  const std::string key = session_.key(fmt::format("name/{}", ++number_));
  check_name(key, name);
  coordination::MessageTimer timer(warn_after_);
  const auto probe = [&](const std::vector<int>& missing, Milliseconds waited) -> std::string {
    throw_if_failed(name);
    if (timer.is_due(waited))
      std::cerr << fmt::format("lockstep: {}\n", report(name, missing, waited)) << std::flush;
    return "";
  };
  try {
    barrier_.arrive_and_wait(timeout_, probe, std::min(kLongestLook, warn_after_), name);
  } catch (const TimeoutError& error) {
    throw TimeoutError(report(name, error.missing_ranks(), timeout_) + ". Gave up.", error.missing_ranks());
  }
  set_position(fmt::format("on its way after '{}'", name));
  if (session_.members().rank == 0) session_.store().erase(key);
}

/// If the names differ, ranks are at different places of the program.
void NamedBarrier::check_name(const std::string& key, const std::string& name) const {
  set_position(fmt::format("waiting at '{}'", name));
  const int rank = session_.members().rank;
  const auto first = nlohmann::json::parse(
      session_.store().set_if_absent(key, json_text(nlohmann::json{{"rank", rank}, {"name", name}})));
  if (first.at("name") == utf8_text(name)) return;
  const std::string text = fmt::format(
      "rank {} is at the barrier '{}', but rank {} is at '{}': all ranks must pass the same barriers in the "
      "same order",
      rank, name, first.at("rank").get<int>(), first.at("name").get<std::string>());
  report_failure(text);
  throw CommunicationError(text);
}

void NamedBarrier::throw_if_failed(const std::string& name) const {
  if (session_.members().size() == 1) return;
  const auto failure = session_.read_failure();
  if (!failure) return;
  throw RemoteError(fmt::format("rank {} ends at '{}' because rank {} failed: {}", session_.members().rank,
                                name, failure->rank, failure->text),
                    failure->rank);
}

void NamedBarrier::set_position(const std::string& text) const {
  session_.store().set(session_.key(fmt::format("position/{}", session_.members().rank)), text);
}

std::string NamedBarrier::position_of(int rank) const {
  const std::string key = session_.key(fmt::format("position/{}", rank));
  return session_.store().contains(key) ? session_.store().get(key) : "not known to have reached a barrier";
}

std::string NamedBarrier::report(const std::string& name, const std::vector<int>& missing,
                                 Milliseconds waited) const {
  std::string text = fmt::format("rank {} has been waiting at '{}' for {} for {}", session_.members().rank,
                                 name, list_ranks(missing), format_seconds(waited));
  for (const int rank : missing) text += fmt::format("; rank {} is {}", rank, position_of(rank));
  return text;
}

void NamedBarrier::report_failure(const std::string& text) const {
  if (session_.members().size() == 1) return;
  try {
    session_.post_failure(text);
    session_.stay_until_read();
  } catch (const CommunicationError& error) {
    std::cerr << fmt::format("lockstep: the other ranks could not be notified of a failure: {}\n",
                             error.what())
              << std::flush;
  }
}

}  // namespace lockstep::train

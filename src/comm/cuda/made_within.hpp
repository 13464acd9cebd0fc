#pragma once

#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "net/signal_free_thread.hpp"

namespace lockstep::comm {

/// What `make` returns or throws; for calls that may block for ever and take no limit. It runs in a thread of
/// its own, which is left to itself when `limit` passes: TimeoutError with the text `late`, and `make` must
/// refer to nothing that goes before the process does. *Local*.
template <class Make>
auto made_within(std::chrono::milliseconds limit, const std::string& late, Make make) -> decltype(make()) {
  std::packaged_task<decltype(make())()> task(std::move(make));
  auto result = task.get_future();
  net::signal_free_thread([task = std::move(task)]() mutable { task(); }).detach();
  if (result.wait_for(limit) == std::future_status::timeout) throw TimeoutError(late);
  return result.get();
}

}  // namespace lockstep::comm

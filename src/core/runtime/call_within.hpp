#pragma once

#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "core/runtime/signal_free_thread.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Returns or throws what `function` does; for calls that may block forever and have no timeout. It runs in a
/// thread of its own. If `limit` passes, that thread is detached and TimeoutError is thrown with the text
/// `late`. `function` must therefore only refer to objects that live until the process ends. *Local*.
template <class Function>
auto call_within(std::chrono::milliseconds limit, const std::string& late, Function function)
    -> decltype(function()) {
  std::packaged_task<decltype(function())()> task(std::move(function));
  auto result = task.get_future();
  signal_free_thread([task = std::move(task)]() mutable { task(); }).detach();
  if (result.wait_for(limit) == std::future_status::timeout) throw TimeoutError(late);
  return result.get();
}

}  // namespace lockstep

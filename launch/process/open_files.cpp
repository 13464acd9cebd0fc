#include "process/open_files.hpp"

#include <sys/resource.h>

#include <optional>

namespace lockstep::launch {
namespace {

/// Empty: the limit was not raised.
std::optional<rlimit> limit_at_start;

}  // namespace

void raise_open_files_limit() {
  rlimit limit{};
  if (limit_at_start || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit_at_start = limit;
}

void restore_open_files_limit() noexcept {
  if (limit_at_start) setrlimit(RLIMIT_NOFILE, &*limit_at_start);
}

}  // namespace lockstep::launch

#include "agent/trace_request.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/file_system.hpp"
#include "lockstep/core/atomic_file.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTraceTime{3};
constexpr std::chrono::milliseconds kTracePause{50};

}  // namespace

TraceRequest::TraceRequest(fs::path folder, const std::vector<RankStatus>& ranks, net::Deadline now)
    : folder_(std::move(folder)), end_(now + kTraceTime), next_look_(now) {
  for (const auto& rank : ranks) {
    if (rank.beat && !rank.status) awaited_.push_back(rank.rank);
  }
  if (awaited_.empty()) return;
  try {
    file_system::make_folders(folder_);
    write_atomically(folder_ / "request", "");
    // The file system's clock, which the traces' times are of, too.
    asked_ = fs::last_write_time(folder_ / "request");
  } catch (const std::exception&) {
    // The ranks say why they cannot write there.
    awaited_.clear();
  }
}

bool TraceRequest::is_written(int rank) const {
  std::error_code absent;
  const auto time = fs::last_write_time(folder_ / fmt::format("trace-rank-{}.json", rank), absent);
  return !absent && time >= asked_;
}

bool TraceRequest::is_over(const std::vector<RankStatus>& ranks, net::Deadline now) {
  std::erase_if(awaited_, [&](int rank) {
    const auto found = std::ranges::find(ranks, rank, &RankStatus::rank);
    return found == ranks.end() || found->status || is_written(rank);
  });
  next_look_ = now + kTracePause;
  return awaited_.empty() || now >= end_;
}

}  // namespace lockstep::launch

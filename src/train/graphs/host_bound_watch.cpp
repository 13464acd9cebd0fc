#include "train/graphs/host_bound_watch.hpp"

#include <fmt/core.h>

#include <utility>

namespace lockstep::train {
namespace {

/// Steps in which kernels are loaded and algorithms chosen; those that are looked at; how many must be found.
constexpr int kFirst = 10, kWatched = 40, kMost = 36;

}  // namespace

void HostBoundWatch::before_step() {
  if (steps_ >= kFirst && steps_ < kFirst + kWatched) is_reached_ = mark_();
}

std::optional<std::string> HostBoundWatch::after_step() {
  const IsReached is_reached = std::exchange(is_reached_, nullptr);
  if (is_reached && is_reached()) ++found_;
  ++steps_;
  if (steps_ != kFirst + kWatched || found_ < kMost) return std::nullopt;
  return fmt::format(
      "host-bound: in {} of {} steps the device had nothing left to do while the host launched the step",
      found_, kWatched);
}

}  // namespace lockstep::train

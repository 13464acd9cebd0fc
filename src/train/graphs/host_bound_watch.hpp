#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep::train {

/// Finds out in some steps whether the device waits for the host. Between the backward and the optimizer's
/// step a mark is given to the device. If the device has reached it by the time the host has launched the
/// rest of the step, it had nothing left to do: the host needs longer to launch a step than the device to run
/// it.
class HostBoundWatch {
 public:
  /// Whether the device has reached a mark. Does not wait.
  using IsReached = std::function<bool()>;
  /// `mark`: gives the device a mark.
  explicit HostBoundWatch(std::function<IsReached()> mark) : mark_(std::move(mark)) {}

  void before_step();
  /// Once, after enough steps and if most of them were found so: how many of how many.
  std::optional<std::string> after_step();

 private:
  std::function<IsReached()> mark_;
  IsReached is_reached_;
  int steps_ = 0, found_ = 0;
};

}  // namespace lockstep::train

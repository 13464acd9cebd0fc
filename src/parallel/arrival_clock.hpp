#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace torch::autograd {
struct Node;
}

namespace lockstep::parallel {

/// Notes when backward has the gradient of each parameter. For parameters on CPUs: a GPU's work is only begun
/// at these times.
class ArrivalClock {
 public:
  explicit ArrivalClock(const std::vector<NamedTensor>& parameters);
  ~ArrivalClock();
  ArrivalClock(const ArrivalClock&) = delete;
  ArrivalClock& operator=(const ArrivalClock&) = delete;

  void reset();

  /// Of the last backward since reset(), by parameter: seconds after the first gradient. Nothing when not all
  /// parameters had one.
  std::optional<std::vector<double>> arrivals() const;

 private:
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t key;
  };
  using Times = std::vector<std::chrono::steady_clock::time_point>;

  std::shared_ptr<Times> times_;
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::parallel

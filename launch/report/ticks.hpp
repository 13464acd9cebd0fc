#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// The range of an axis, and its labelled positions in ascending order.
struct Axis {
  double low = 0;
  double high = 1;
  struct Tick {
    double value = 0;
    std::string label;
  };
  std::vector<Tick> ticks;
  bool is_log = false;

  /// Where a value lies: 0 at `low`, 1 at `high`.
  double fraction_of(double value) const;
};

/// An axis that contains the finite range, with 2 to about `most` ticks at round numbers (1, 2 or 5 times a
/// power of ten). A range of one value is widened. *Local*.
Axis linear_axis(double low, double high, int most);

/// The same for positive numbers on a logarithmic scale: ticks are powers of ten, and 2 and 5 times these on
/// a short axis. *Local*.
Axis log_axis(double low, double high, int most);

}  // namespace lockstep::launch

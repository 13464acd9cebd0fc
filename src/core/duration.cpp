#include "lockstep/core/duration.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/option_values.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Unit = Duration::Unit;

using Ending = std::pair<std::string_view, Unit>;
constexpr std::array<Ending, 5> kEndings{{{"ba", Unit::steps},
                                          {"ep", Unit::epochs},
                                          {"sp", Unit::samples},
                                          {"dur", Unit::share},
                                          {"sec", Unit::seconds}}};

/// What means "never", as Python's sys.maxsize or 1e20, stays the largest number, to which others can be
/// added.
std::int64_t saturated(double steps) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  return steps < static_cast<double>(kMost) ? static_cast<std::int64_t>(steps) : kMost;
}

/// Tolerates rounding errors: a product may differ from the intended integer in its last bit.
std::int64_t rounded_up(double steps) { return saturated(std::ceil(steps - 1e-9 * steps)); }

double require_known(std::int64_t number, const char* what, const Duration& duration) {
  if (number > 0) return static_cast<double>(number);
  throw UsageError(
      fmt::format("the duration {} cannot be used here: {} is not known", duration.text(), what));
}

}  // namespace

Duration::Duration(double value, Unit unit) : value_(value), unit_(unit) {
  const bool whole = unit != Unit::steps || value == std::trunc(value);
  if (std::isfinite(value) && value >= 0 && whole && (unit != Unit::share || value <= 1)) return;
  throw UsageError("a duration must be 0 or more, whole if it counts steps, and at most 1dur; not " +
                   number_text(value));
}

Duration::Duration(std::string_view text) {
  if (const auto number = parse_number<double>(text)) {
    *this = Duration(*number);
    return;
  }
  for (const auto& [ending, unit] : kEndings) {
    if (!text.ends_with(ending)) continue;
    const auto number = parse_number<double>(text.substr(0, text.size() - ending.size()));
    if (!number) break;
    *this = Duration(*number, unit);
    return;
  }
  throw UsageError(
      fmt::format("'{}' is not a duration: expected steps as in 500, or a number with a unit as in 3ep, "
                  "500ba, 100000sp, 0.5dur or 3600sec",
                  text));
}

std::string Duration::text() const {
  const auto* ending = std::ranges::find(kEndings, unit_, &Ending::second);
  return number_text(value_) + std::string(unit_ == Unit::steps ? "" : ending->first);
}

std::int64_t Duration::steps(const DurationScale& scale) const {
  switch (unit_) {
    case Unit::epochs:
      return rounded_up(value_ * require_known(scale.steps_per_epoch, "the length of an epoch", *this));
    case Unit::samples:
      return rounded_up(value_ /
                        require_known(scale.samples_per_step, "the number of samples in a step", *this));
    case Unit::share:
      return rounded_up(value_ * require_known(scale.training_steps, "the length of the training", *this));
    case Unit::seconds:
      throw UsageError(
          fmt::format("the duration {} is a time, but a number of steps is needed here", text()));
    case Unit::steps:
      break;
  }
  return saturated(value_);
}

}  // namespace lockstep

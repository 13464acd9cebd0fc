#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Converts durations in other units to optimizer steps.
struct DurationScale {
  /// Optimizer steps per pass over the data; 0: unknown.
  std::int64_t steps_per_epoch = 0;
  /// Samples that all ranks together read per optimizer step.
  std::int64_t samples_per_step = 0;
  /// Optimizer steps of the whole training; 0: not yet known.
  std::int64_t training_steps = 0;
};

/// How long something lasts in a training, or how often it happens: the length of a run, a warm-up, the
/// interval between two checkpoints. As text, it uses the units of MosaicML Composer's Time:
///
/// | text        | meaning                                                |
/// | ----------- | ------------------------------------------------------ |
/// | `500`       | 500 optimizer steps                                    |
/// | `500ba`     | likewise: batches, those of all ranks counting as one  |
/// | `3ep`       | passes over the data                                   |
/// | `100000sp`  | samples of all ranks together                          |
/// | `0.1dur`    | a share of the whole training                          |
/// | `0.1`       | likewise: Hugging Face's rule for numbers below 1      |
/// | `3600sec`   | seconds by the clock of rank 0                         |
///
/// A value type. *Local*.
class Duration {
 public:
  enum class Unit : std::uint8_t { steps, epochs, samples, share, seconds };

  /// No steps.
  Duration() = default;
  /// Throws UsageError if the value is negative or not finite, for a number of steps that is not whole, and
  /// for a share above 1.
  Duration(double value, Unit unit);
  /// Numbers between 0 and 1 are a share of the training, others are steps. Implicit, so that options can be
  /// set to plain numbers: `.save_steps = 500`.
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number> Duration(Number number)
      : Duration(static_cast<double>(number), number > 0 && number < 1 ? Unit::share : Unit::steps) {}
  /// Parses a text of the table above. Implicit, as in `.max_duration = "3ep"`. Throws UsageError for any
  /// other text.
  Duration(const char* text) : Duration(std::string_view(text)) {}
  Duration(std::string_view text);

  double value() const noexcept { return value_; }
  Unit unit() const noexcept { return unit_; }

  /// The shortest text that parses to the same duration: "500", "0.1dur", "3ep".
  std::string text() const;

  /// True for a duration in seconds.
  bool is_time() const noexcept { return unit_ == Unit::seconds; }
  bool is_zero() const noexcept { return value_ == 0; }

  /// In optimizer steps, rounded up. Throws UsageError for seconds, and if `scale` lacks a value that is
  /// needed.
  std::int64_t steps(const DurationScale& scale) const;

  friend bool operator==(const Duration&, const Duration&) = default;

 private:
  double value_ = 0;
  Unit unit_ = Unit::steps;
};

}  // namespace lockstep

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/world.hpp"

namespace lockstep {

/// Appearance and output of a progress bar.
struct ProgressBarOptions {
  using Clock = std::chrono::steady_clock;

  /// Printed at the beginning of the line: "epoch 3".
  std::string description;
  /// Number of steps; 0: unknown, then no percentage, bar or remaining time is shown.
  std::uint64_t total = 0;
  /// Steps done before this bar was created, as after a resume. They count for the percentage, not for the
  /// rate.
  std::uint64_t initial = 0;
  /// The name of a step in the rate: "it/s".
  std::string unit = "it";
  /// False: nothing is written.
  bool enabled = true;
  /// The stream to write to; null: standard error. Not owned, must outlive the bar.
  std::ostream* out = nullptr;
  /// Whether `out` is a terminal, on which a line can be redrawn. If not set: detected for standard error
  /// (`out` is null), otherwise false.
  std::optional<bool> terminal = {};
  /// Minimum time between two redraws on a terminal.
  std::chrono::milliseconds redraw_interval{100};
  /// Minimum time between two lines elsewhere (a log file, a pipe).
  std::chrono::milliseconds line_interval{10'000};
  /// For tests: the time, and the width of the terminal. Empty: the real ones.
  std::function<Clock::time_point()> now = {};
  std::function<int()> terminal_width = {};
};

/// The content of a line of progress.
struct ProgressState {
  std::string description;
  std::uint64_t count = 0;
  std::uint64_t total = 0;
  std::uint64_t initial = 0;
  std::string unit = "it";
  double seconds = 0.0;
  std::vector<std::pair<std::string, std::string>> metrics;
};

/// The text of a line, without a line end: "epoch 3: 42% |#### | 42/100 [00:12<00:16, 3.50it/s, loss=0.52]".
/// It has at most `width` columns (0: no limit): if they are too few, the bar is removed first, then the
/// metrics, the last one first. The bar is drawn only if `with_bar` is true. *Local*.
std::string progress_line(const ProgressState& state, int width, bool with_bar);

/// Shows the progress of a loop. On a terminal it redraws one line a few times per second. Elsewhere it
/// writes a line from time to time and one at the end, so that log files stay readable.
///
/// ```cpp
/// ProgressBar bar(world, {.description = "epoch 3", .total = batches});
/// for (...) {
///   bar.set_metric("loss", loss);
///   bar.advance();
/// }
/// ```
///
/// A step that draws nothing costs one clock reading. All members are *Local*; one thread at a time. Errors
/// of the stream are ignored: a full disk under the log does not end a training.
class ProgressBar {
 public:
  explicit ProgressBar(ProgressBarOptions options = {});
  /// The same, but only the main rank writes.
  ProgressBar(const World& world, ProgressBarOptions options);
  /// Calls `close`.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Adds `steps` to the steps done. Draws if the interval is over or, on a terminal, the total is reached.
  void advance(std::uint64_t steps = 1);
  /// Shows "name=value" after the rate, from the next redraw on; a name keeps its position. A number is shown
  /// with four significant digits.
  void set_metric(std::string_view name, double value);
  void set_metric(std::string_view name, std::string value);
  void set_description(std::string description);
  /// Erases the line on a terminal, so that other text can be written there: the next redraw is below that
  /// text.
  void clear();
  /// The same for the bar that this thread drew last: for code that does not know the bar, such as
  /// Accelerator::print.
  static void clear_line();
  /// Draws the last state and ends the line; nothing is written afterwards. Calling it again does nothing.
  void close() noexcept;

  std::uint64_t count() const noexcept { return state_.count; }

 private:
  void draw(bool last);

  ProgressBarOptions options_;
  ProgressState state_;
  bool open_ = false;
  ProgressBarOptions::Clock::time_point begin_;
  ProgressBarOptions::Clock::time_point last_drawn_;
  std::size_t drawn_columns_ = 0;
  /// For clear_line(): expires with the bar.
  std::shared_ptr<ProgressBar*> self_ = std::make_shared<ProgressBar*>(this);
};

}  // namespace lockstep

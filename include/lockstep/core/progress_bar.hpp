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

/// How a progress bar looks and where it is written.
struct ProgressBarOptions {
  using Clock = std::chrono::steady_clock;

  /// Stands at the head of the line: "epoch 3".
  std::string description;
  /// How many steps there are; 0: nobody knows, and no percentage, bar or remaining time is shown.
  std::uint64_t total = 0;
  /// Steps that were done before this bar began, as after a resume. They count in the percentage, not in the
  /// rate.
  std::uint64_t initial = 0;
  /// What one step is called in the rate: "it/s".
  std::string unit = "it";
  /// False: nothing is ever written.
  bool enabled = true;
  /// Where to write; null: standard error. Not owned, must outlive the bar.
  std::ostream* out = nullptr;
  /// Whether `out` is a terminal, on which a line can be redrawn. Nothing: asked of standard error when `out`
  /// is null, else false.
  std::optional<bool> terminal = {};
  /// The least time between two drawings on a terminal.
  std::chrono::milliseconds redraw_interval{100};
  /// The least time between two lines elsewhere (a log file, a pipe).
  std::chrono::milliseconds line_interval{10'000};
  /// For tests: the time, and the columns of the terminal. Empty: the real ones.
  std::function<Clock::time_point()> now = {};
  std::function<int()> terminal_width = {};
};

/// What one line of progress says.
struct ProgressState {
  std::string description;
  std::uint64_t count = 0;
  std::uint64_t total = 0;
  std::uint64_t initial = 0;
  std::string unit = "it";
  double seconds = 0.0;
  std::vector<std::pair<std::string, std::string>> metrics;
};

/// The text of one line, without line ends: "epoch 3:  42% |####      | 42/100 [00:12<00:17, 3.4it/s,
/// loss=0.52]". `width` columns are never exceeded (0: no limit): where they are too few, the bar goes first,
/// then the metrics from the last one on. The bar is drawn only when `with_bar`. *Local*.
std::string progress_line(const ProgressState& state, int width, bool with_bar);

/// Shows how far a loop is. On a terminal it redraws one line a few times a second; elsewhere it writes a
/// whole line now and then and one at the end, so that log files stay readable.
///
/// ```cpp
/// ProgressBar bar(world, {.description = "epoch 3", .total = batches});
/// for (...) {
///   bar.set_metric("loss", loss);
///   bar.advance();
/// }
/// ```
///
/// A step that draws nothing costs one look at the clock. All members are *Local* and for one thread at a
/// time. Errors of the stream are ignored: a full disk under the log does not end a training.
class ProgressBar {
 public:
  explicit ProgressBar(ProgressBarOptions options = {});
  /// The same, silent on every rank but the main one.
  ProgressBar(const World& world, ProgressBarOptions options);
  /// Ends the line, as `close` does.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `steps` more are done. Draws when the interval is over or the total is reached.
  void advance(std::uint64_t steps = 1);
  /// Shows "name=value" behind the rate, from the next drawing on; a name keeps its place. A number is shown
  /// with four significant digits.
  void set_metric(std::string_view name, double value);
  void set_metric(std::string_view name, std::string value);
  void set_description(std::string description);
  /// Takes the line off a terminal, for whoever writes a line of its own there: the next drawing comes below
  /// it.
  void clear();
  /// The same for the bar that this thread has drawn last: for whoever writes a line and does not know the
  /// bar, such as Accelerator::print.
  static void clear_line();
  /// Draws the last state, ends the line and falls silent. Again: does nothing.
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
  /// For clear_line(): ends with the bar.
  std::shared_ptr<ProgressBar*> self_ = std::make_shared<ProgressBar*>(this);
};

}  // namespace lockstep

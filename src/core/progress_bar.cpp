#include "lockstep/core/progress_bar.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/time.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kBarColumns = 10;

/// Slow loops are shown as seconds per step.
std::string rate_text(double rate, const std::string& unit) {
  if (rate <= 0.0) return fmt::format("?{}/s", unit);
  return rate >= 1.0 ? fmt::format("{:.2f}{}/s", rate, unit) : fmt::format("{:.2f}s/{}", 1.0 / rate, unit);
}

std::string remaining_text(const ProgressState& state, double rate) {
  if (state.total == 0) return "";
  const std::uint64_t left = state.total - std::min(state.count, state.total);
  return "<" + (rate > 0.0 ? format_clock(static_cast<double>(left) / rate)
                           : std::string(left == 0 ? "00:00" : "?"));
}

std::string bar_text(double fraction) {
  const auto filled = static_cast<std::size_t>(fraction * kBarColumns);
  return "|" + std::string(filled, '#') + std::string(kBarColumns - filled, ' ') + "| ";
}

std::string head_text(const ProgressState& state, bool with_bar) {
  const std::string head = state.description.empty() ? "" : state.description + ": ";
  if (state.total == 0) return fmt::format("{}{}{}", head, state.count, state.unit);
  const double fraction = std::min(1.0, static_cast<double>(state.count) / static_cast<double>(state.total));
  return fmt::format("{}{:3d}% {}{}/{}", head, static_cast<int>(fraction * 100.0),
                     with_bar ? bar_text(fraction) : "", state.count, state.total);
}

/// Truncates to `columns` code points, so that no UTF-8 character is split.
std::string truncate(std::string text, int columns) {
  int seen = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins_letter = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (begins_letter && ++seen > columns) {
      text.resize(at);
      break;
    }
  }
  return text;
}

constexpr int kUsualWidth = 80;

int standard_error_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return size.ws_col;
}

ProgressBarOptions completed(ProgressBarOptions options) {
  if (!options.terminal) options.terminal = options.out == nullptr && isatty(STDERR_FILENO) != 0;
  if (options.out == nullptr) options.out = &std::cerr;
  if (!options.now) options.now = [] { return ProgressBarOptions::Clock::now(); };
  if (!options.terminal_width) options.terminal_width = standard_error_width;
  return options;
}

ProgressBarOptions for_rank(const World& world, ProgressBarOptions options) {
  options.enabled = options.enabled && world.is_main_process();
  return options;
}

/// The bar in whose line the cursor is. Another thread may destroy it.
thread_local std::weak_ptr<ProgressBar*> on_terminal;

std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// With the first `metrics` metrics.
std::string line_of(const ProgressState& state, bool with_bar, std::size_t metrics) {
  const std::uint64_t done = state.count - std::min(state.count, state.initial);
  const double rate = state.seconds > 0.0 ? static_cast<double>(done) / state.seconds : 0.0;
  std::string line = fmt::format("{} [{}{}, {}", head_text(state, with_bar), format_clock(state.seconds),
                                 remaining_text(state, rate), rate_text(rate, state.unit));
  for (std::size_t i = 0; i < metrics; ++i)
    line += fmt::format(", {}={}", state.metrics[i].first, state.metrics[i].second);
  // A control character in a name or a value would break the single line that is redrawn.
  for (char& letter : line) letter = static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  return line + ']';
}

}  // namespace

std::string progress_line(const ProgressState& state, int width, bool with_bar) {
  std::string line = line_of(state, with_bar, state.metrics.size());
  if (width <= 0) return line;
  // Removes the bar, then metrics from the last one on: part of a number would be misleading.
  const auto columns = static_cast<std::size_t>(width);
  for (std::size_t left = state.metrics.size(); letters(line) > columns && (with_bar || left > 0);) {
    if (!with_bar) --left;
    with_bar = false;
    line = line_of(state, false, left);
  }
  return truncate(std::move(line), width);
}

ProgressBar::ProgressBar(const World& world, ProgressBarOptions options)
    : ProgressBar(for_rank(world, std::move(options))) {}

ProgressBar::ProgressBar(ProgressBarOptions options) : options_(completed(std::move(options))) {
  state_.description = options_.description;
  state_.total = options_.total;
  state_.initial = options_.initial;
  state_.count = options_.initial;
  state_.unit = options_.unit;
  open_ = options_.enabled;
  begin_ = options_.now();
  last_drawn_ = begin_;
  if (open_ && *options_.terminal) draw(false);
}

ProgressBar::~ProgressBar() { close(); }

void ProgressBar::advance(std::uint64_t steps) {
  state_.count += steps;
  if (!open_) return;
  const auto interval = *options_.terminal ? options_.redraw_interval : options_.line_interval;
  const bool complete = *options_.terminal && state_.total > 0 && state_.count >= state_.total;
  if (complete || options_.now() - last_drawn_ >= interval) draw(false);
}

void ProgressBar::set_metric(std::string_view name, double value) {
  set_metric(name, fmt::format("{:.4g}", value));
}

void ProgressBar::set_metric(std::string_view name, std::string value) {
  auto& metrics = state_.metrics;
  const auto found = std::ranges::find_if(metrics, [&](const auto& metric) { return metric.first == name; });
  if (found != metrics.end()) {
    found->second = std::move(value);
  } else {
    metrics.emplace_back(name, std::move(value));
  }
}

void ProgressBar::set_description(std::string description) { state_.description = std::move(description); }

void ProgressBar::clear() {
  if (!open_ || !*options_.terminal || drawn_columns_ == 0) return;
  *options_.out << '\r' << std::string(drawn_columns_, ' ') << '\r' << std::flush;
  drawn_columns_ = 0;
}

void ProgressBar::clear_line() {
  if (const auto bar = on_terminal.lock()) (*bar)->clear();
}

void ProgressBar::draw(bool last) {
  const auto now = options_.now();
  last_drawn_ = now;
  state_.seconds = std::chrono::duration<double>(now - begin_).count();
  if (!*options_.terminal) {
    *options_.out << progress_line(state_, 0, false) << '\n' << std::flush;
    return;
  }
  // One column stays free: a terminal may wrap after its last column, and "\r" would then return to the wrong
  // line.
  const std::string line = progress_line(state_, std::max(1, options_.terminal_width() - 1), true);
  const std::size_t columns = letters(line);
  const std::size_t stale = drawn_columns_ > columns ? drawn_columns_ - columns : 0;
  *options_.out << '\r' << line << std::string(stale, ' ') << (last ? "\n" : "") << std::flush;
  drawn_columns_ = columns;
  on_terminal = self_;
}

void ProgressBar::close() noexcept {
  if (!open_) return;
  open_ = false;
  try {
    draw(true);
  } catch (...) {
    // An exception of the stream must not become std::terminate.
  }
}

}  // namespace lockstep

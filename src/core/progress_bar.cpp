#include "lockstep/core/progress_bar.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

namespace lockstep {
namespace {

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

std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

ProgressBar::ProgressBar(const World& world, ProgressBarOptions options)
    : ProgressBar(for_rank(world, std::move(options))) {}

ProgressBar::ProgressBar(ProgressBarOptions options) : options_(completed(std::move(options))) {
  state_.description = options_.description;
  state_.total = options_.total;
  state_.initial = options_.initial;
  state_.count = options_.initial;
  state_.unit = options_.unit;
  out_ = options_.out;
  terminal_ = *options_.terminal;
  open_ = options_.enabled;
  begin_ = options_.now();
  last_drawn_ = begin_;
  if (open_ && terminal_) draw(false);
}

ProgressBar::~ProgressBar() { close(); }

void ProgressBar::advance(std::uint64_t steps) {
  state_.count += steps;
  if (!open_) return;
  const auto interval = terminal_ ? options_.redraw_interval : options_.line_interval;
  const bool complete = terminal_ && state_.total > 0 && state_.count >= state_.total;
  if (complete || options_.now() - last_drawn_ >= interval) draw(false);
}

void ProgressBar::set_metric(std::string_view name, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  set_metric(name, std::string(text));
}

void ProgressBar::set_metric(std::string_view name, std::string value) {
  auto& metrics = state_.metrics;
  const auto same = [&](const auto& metric) { return metric.first == name; };
  const auto found = std::find_if(metrics.begin(), metrics.end(), same);
  if (found != metrics.end()) {
    found->second = std::move(value);
  } else {
    metrics.emplace_back(name, std::move(value));
  }
}

void ProgressBar::set_description(std::string description) { state_.description = std::move(description); }

void ProgressBar::draw(bool last) {
  const auto now = options_.now();
  last_drawn_ = now;
  drawn_count_ = state_.count;
  state_.seconds = std::chrono::duration<double>(now - begin_).count();
  if (!terminal_) {
    *out_ << progress_line(state_, 0, false) << '\n' << std::flush;
    return;
  }
  // One column stays free: a terminal that has written its last column may wrap, and "\r" would miss the
  // line.
  const std::string line = progress_line(state_, std::max(1, options_.terminal_width() - 1), true);
  const std::size_t columns = letters(line);
  const std::size_t stale = drawn_columns_ > columns ? drawn_columns_ - columns : 0;
  *out_ << '\r' << line << std::string(stale, ' ') << (last ? "\n" : "") << std::flush;
  drawn_columns_ = columns;
}

void ProgressBar::close() noexcept {
  if (!open_) return;
  open_ = false;
  try {
    draw(true);
  } catch (...) {
    // A stream that throws must not turn the end of a loop into std::terminate.
  }
}

}  // namespace lockstep

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/progress_bar.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kBarColumns = 10;
/// Longer than any job; beyond it a remaining time is a guess about nothing.
constexpr double kLongestTime = 1e8;

/// "02:05", and "1:02:05" from an hour on.
std::string time_text(double seconds) {
  if (!(seconds >= 0.0 && seconds < kLongestTime)) return "?";
  const long whole = std::lround(std::floor(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

double rate_of(const ProgressState& state) {
  const std::uint64_t done = state.count - std::min(state.count, state.initial);
  return state.seconds > 0.0 ? static_cast<double>(done) / state.seconds : 0.0;
}

/// Slow loops read better as seconds per step.
std::string rate_text(double rate, const std::string& unit) {
  if (rate <= 0.0) return fmt::format("?{}/s", unit);
  return rate >= 1.0 ? fmt::format("{:.2f}{}/s", rate, unit) : fmt::format("{:.2f}s/{}", 1.0 / rate, unit);
}

std::string remaining_text(const ProgressState& state, double rate) {
  if (state.total == 0) return "";
  const std::uint64_t left = state.total - std::min(state.count, state.total);
  return "<" +
         (rate > 0.0 ? time_text(static_cast<double>(left) / rate) : std::string(left == 0 ? "00:00" : "?"));
}

double fraction_of(const ProgressState& state) {
  return std::min(1.0, static_cast<double>(state.count) / static_cast<double>(state.total));
}

std::string bar_text(double fraction) {
  const auto filled = static_cast<std::size_t>(fraction * kBarColumns);
  return "|" + std::string(filled, '#') + std::string(kBarColumns - filled, ' ') + "| ";
}

std::string head_text(const ProgressState& state, bool with_bar) {
  const std::string head = state.description.empty() ? "" : state.description + ": ";
  if (state.total == 0) return fmt::format("{}{}{}", head, state.count, state.unit);
  const double fraction = fraction_of(state);
  return fmt::format("{}{:3d}% {}{}/{}", head, static_cast<int>(fraction * 100.0),
                     with_bar ? bar_text(fraction) : "", state.count, state.total);
}

/// Cuts to `columns` code points, so that no UTF-8 letter is cut in two.
std::string cut(std::string text, int columns) {
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

}  // namespace

std::string progress_line(const ProgressState& state, int width, bool with_bar) {
  const double rate = rate_of(state);
  std::string line = head_text(state, with_bar) + " [" + time_text(state.seconds) +
                     remaining_text(state, rate) + ", " + rate_text(rate, state.unit);
  for (const auto& [name, value] : state.metrics) line += ", " + name + "=" + value;
  // A line break inside a name or a value would break the one line that is redrawn.
  for (char& letter : line) letter = static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  line += ']';
  return width > 0 ? cut(std::move(line), width) : line;
}

}  // namespace lockstep

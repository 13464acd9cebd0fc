#include "lockstep/train/logger.hpp"
#include "lockstep/core/progress_bar.hpp"

#include <fmt/core.h>
#include <ctime>
#include <iostream>

namespace lockstep {
namespace {

const char* level_name(LogLevel level) {
  constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  return kNames[static_cast<int>(level)];
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

}  // namespace

void Logger::write(LogLevel level, LogFrom from, const std::string& text) const {
  const int rank = accelerator_.process_index();
  const bool for_all = from == LogFrom::main_process || (from == LogFrom::each_node && rank == 0);
  const std::string who = for_all ? "" : fmt::format("[RANK {}] ", rank);
  const std::string line =
      fmt::format("{} {} {}{}: {}\n", time_of_day(), level_name(level), who, name_, text);
  if (from == LogFrom::main_process && rank != 0) return;
  if (from == LogFrom::each_node && !accelerator_.is_local_main_process()) return;
  const int turns = from == LogFrom::in_order ? accelerator_.num_processes() : 1;
  for (int turn = 0; turn < turns; ++turn) {
    if (turns == 1 || turn == rank) {
      ProgressBar::clear_line();
      std::cerr << line << std::flush;
    }
    if (turns > 1) accelerator_.wait_for_everyone();
  }
}

}  // namespace lockstep

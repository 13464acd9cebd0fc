#pragma once

#include <sstream>
#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// How grave a message is; in this order.
enum class LogLevel { debug, info, warning, error };

/// What a Logger passes on.
struct LoggerOptions {
  /// What is below is not written.
  LogLevel level = LogLevel::info;
};

/// Who writes a message.
enum class LogFrom {
  main_process,  ///< Rank 0 alone. *Local*.
  each_node,     ///< The first rank of each node. *Local*.
  everyone,      ///< Every rank, as they come. *Local*.
  in_order,      ///< Every rank, one after the other in the order of ranks. *Collective*.
};

/// Messages on standard error with time, level, rank and name:
///
///     2026-11-21 20:15:00 INFO [RANK 1] train: 400 batches
///
/// The rank is left out where rank 0 speaks for all. Each message is one write, so that ranks do not tear
/// each other's lines. Any number of loggers; one thread at a time each.
class Logger {
 public:
  /// `name` stands before each message: the part of the program that speaks. *Local*.
  Logger(const Accelerator& accelerator, std::string name, const LoggerOptions& options = {})
      : accelerator_(accelerator), name_(std::move(name)), options_(options) {}

  /// Writes the parts one after the other, as `<<` would. With LogFrom::in_order all ranks must have the same
  /// level. With LogFrom::in_order *Collective*, else *Local*.
  template <class... Parts>
  void log(LogLevel level, LogFrom from, const Parts&... parts) const {
    if (level < options_.level) return;
    std::ostringstream text;
    (text << ... << parts);
    write(level, from, text.str());
  }
  /// From rank 0, for all. *Local*: other ranks' calls write nothing.
  template <class... Parts>
  void debug(const Parts&... parts) const {
    log(LogLevel::debug, LogFrom::main_process, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) const {
    log(LogLevel::info, LogFrom::main_process, parts...);
  }
  template <class... Parts>
  void warning(const Parts&... parts) const {
    log(LogLevel::warning, LogFrom::main_process, parts...);
  }
  template <class... Parts>
  void error(const Parts&... parts) const {
    log(LogLevel::error, LogFrom::main_process, parts...);
  }

 private:
  void write(LogLevel level, LogFrom from, const std::string& text) const;

  Accelerator accelerator_;
  std::string name_;
  LoggerOptions options_;
};

}  // namespace lockstep

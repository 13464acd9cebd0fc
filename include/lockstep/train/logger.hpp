#pragma once

#include <sstream>
#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// Severity of a message, in ascending order.
enum class LogLevel { debug, info, warning, error };

/// Options of a Logger.
struct LoggerOptions {
  /// Messages below this level are not written.
  LogLevel level = LogLevel::info;
};

/// Which ranks write a message.
enum class LogFrom {
  main_process,  ///< Rank 0 only. *Local*.
  each_node,     ///< The first rank of each node. *Local*.
  everyone,      ///< Every rank, in any order. *Local*.
  in_order,      ///< Every rank, in rank order. *Collective*.
};

/// Messages on standard error with time, level, rank and name:
///
///     2026-11-21 20:15:00 INFO [RANK 1] train: 400 batches
///
/// The rank is omitted in messages of rank 0 only. Each message is one write, so that lines of different
/// ranks do not mix. Any number of loggers; each is used by one thread at a time.
class Logger {
 public:
  /// `name` precedes each message: the part of the program that logs. *Local*.
  Logger(const Accelerator& accelerator, std::string name, const LoggerOptions& options = {})
      : accelerator_(accelerator), name_(std::move(name)), options_(options) {}

  /// Writes the parts one after the other, as `<<` would. With LogFrom::in_order all ranks must have the same
  /// level. *Collective* with LogFrom::in_order, otherwise *Local*.
  template <class... Parts>
  void log(LogLevel level, LogFrom from, const Parts&... parts) const {
    if (level < options_.level) return;
    std::ostringstream text;
    (text << ... << parts);
    write(level, from, text.str());
  }
  /// From rank 0. *Local*: calls of other ranks write nothing.
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

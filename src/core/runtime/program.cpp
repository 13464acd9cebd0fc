#include "lockstep/core/runtime/program.hpp"

#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/json_text.hpp"
#include "core/runtime/crash_handler.hpp"
#include "core/runtime/stop_signals.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/world.hpp"

namespace lockstep {
namespace {

/// Delay of the exit of a rank that failed only because it lost another.
constexpr std::chrono::seconds kSecondaryExitDelay{1};

struct Failure {
  std::string kind;
  std::string text;
  int exit_code;
  /// The rank only lost another one, or timed out waiting for it.
  bool of_communication = false;
};

/// The texts of LibTorch's exceptions end with a stack trace, which does not help the reader of the line.
std::string without_trace(const std::string& text) {
  return text.substr(0, text.find("\nException raised from"));
}

Failure failure_in_flight() {
  try {
    throw;
  } catch (const UsageError& error) {
    return {"UsageError", error.what(), 2};
  } catch (const DataError& error) {
    return {"DataError", error.what(), 1};
  } catch (const TimeoutError& error) {
    return {"TimeoutError", error.what(), kTimeoutExitCode, true};
  } catch (const RemoteError& error) {
    return {"RemoteError", error.what(), 1, true};
  } catch (const CommunicationError& error) {
    return {"CommunicationError", error.what(), 1, true};
  } catch (const Error& error) {
    return {"Error", error.what(), 1};
  } catch (const std::exception& error) {
    return {"exception", without_trace(error.what()), 1};
  } catch (...) {
    return {"exception", "of an unknown type", 1};
  }
}

/// Replaces each line break, and the blanks around it, by one blank: logs are searched by lines, and the
/// lines of several ranks mix.
std::string in_one_line(const std::string& text) {
  std::string line;
  bool between_lines = false;
  for (const char letter : text) {
    between_lines = between_lines || letter == '\n' || letter == '\r';
    if (between_lines && std::isspace(static_cast<unsigned char>(letter)) != 0) continue;
    if (between_lines && !line.empty()) line += ' ';
    between_lines = false;
    line += letter;
  }
  return line;
}

/// torchrun's format: pytorch.org/docs/stable/elastic/errors.html. Without py_callstack, which torchrun would
/// show instead of the message, even if it is empty.
bool write_error_file(const std::string& path, const Failure& failure,
                      const std::optional<std::string>& rank) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  nlohmann::json extra{{"timestamp", fmt::to_string(now.count())}};
  if (rank) extra["rank"] = *rank;
  // Tells Lockstep's launcher to look for the cause elsewhere.
  if (failure.of_communication) extra["is_secondary"] = true;
  const nlohmann::json content{
      {"message", {{"message", failure.kind + ": " + failure.text}, {"extraInfo", extra}}}};
  std::ofstream file(path, std::ios::trunc);
  file << json_text(content) << std::flush;
  if (!file) std::cerr << "lockstep: the error file " + path + " could not be written\n" << std::flush;
  return static_cast<bool>(file);
}

/// The rank, if the environment provides it: a wrong environment may be the reason of the failure.
std::optional<std::string> rank_of(const Environment& environment) {
  if (const auto rank = find_variable(environment, "RANK")) return rank;
  try {
    const World world = World::from_environment(environment);
    if (world.world_size > 1) return fmt::to_string(world.rank);
  } catch (const UsageError&) {
  }
  return std::nullopt;
}

void report(const std::string& name, const Failure& failure) {
  const Environment environment = process_environment();
  const auto rank = rank_of(environment);
  const auto path = find_variable(environment, "TORCHELASTIC_ERROR_FILE");
  const bool has_file = path && !path->empty() && write_error_file(*path, failure, rank);
  // All ranks usually have the same error in the command line or the data. If it is this rank's alone, the
  // launcher shows it from the file.
  const bool rank_0_says_it =
      (failure.kind == "UsageError" || failure.kind == "DataError") && rank && *rank != "0" && has_file;
  if (!rank_0_says_it) {
    std::cerr << name + (rank ? " [rank " + *rank + "]" : "") + ": error: " + in_one_line(failure.text) + "\n"
              << std::flush;
  }
  // A launcher takes the rank that exits first for the root cause, and terminates the others. A rank that
  // only lost another, perhaps within microseconds, therefore lets that rank exit first. Ranks that wait for
  // this one can also report it before their connections close. A rank that received a signal to stop does
  // not wait: the launcher knows.
  if (rank && failure.of_communication && StopSignals::received() == 0)
    std::this_thread::sleep_for(kSecondaryExitDelay);
}

/// Reports the exception in flight and returns the exit code for it.
int answer(const std::string& name) noexcept {
  try {
    const Failure failure = failure_in_flight();
    report(name, failure);
    return failure.exit_code;
  } catch (...) {
    return 1;  // The report failed too: out of memory, or standard error is closed.
  }
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) noexcept {
  try {
    // Heartbeat and crash reports are for the launcher that started this process.
    const auto error_file = find_variable(process_environment(), "TORCHELASTIC_ERROR_FILE");
    if (error_file && !error_file->empty()) install_crash_handler(*error_file);
    process_heartbeat().working("start");
    return body();
  } catch (...) {
    return answer(name);
  }
}

}  // namespace lockstep

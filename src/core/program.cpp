#include "lockstep/core/program.hpp"

#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Failure {
  std::string kind;
  std::string text;
  int exit_code;
};

/// LibTorch's exceptions carry a stack trace behind their text, which is of no use to who reads the line.
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
    return {"TimeoutError", error.what(), 1};
  } catch (const RemoteError& error) {
    return {"RemoteError", error.what(), 1};
  } catch (const CommunicationError& error) {
    return {"CommunicationError", error.what(), 1};
  } catch (const Error& error) {
    return {"Error", error.what(), 1};
  } catch (const std::exception& error) {
    return {"exception", without_trace(error.what()), 1};
  } catch (...) {
    return {"exception", "of a type that says nothing about itself", 1};
  }
}

/// torchrun's format: pytorch.org/docs/stable/elastic/errors.html. Without a py_callstack, which torchrun
/// would show instead of the message, even an empty one.
void write_error_file(const std::string& path, const Failure& failure) {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const nlohmann::json extra{{"timestamp", std::to_string(now.count())}};
  const nlohmann::json content{
      {"message", {{"message", failure.kind + ": " + failure.text}, {"extraInfo", extra}}}};
  std::ofstream file(path, std::ios::trunc);
  file << content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void report(const std::string& name, const Failure& failure) {
  const Environment environment = process_environment();
  const auto rank = find_variable(environment, "RANK");
  std::cerr << name + (rank ? " [rank " + *rank + "]" : "") + ": error: " + failure.text + "\n" << std::flush;
  if (const auto path = find_variable(environment, "TORCHELASTIC_ERROR_FILE"); path && !path->empty()) {
    write_error_file(*path, failure);
  }
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (...) {
    const Failure failure = failure_in_flight();
    report(name, failure);
    return failure.exit_code;
  }
}

}  // namespace lockstep

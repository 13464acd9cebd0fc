#include "comm/diagnostics/library_log.hpp"

#include <c10/util/Logging.h>

#include <mutex>

namespace lockstep::comm {
namespace {

constexpr int kWarnings = 1;  // LibTorch's default.
constexpr const char* kLevel = "TORCH_CPP_LOG_LEVEL";

}  // namespace

bool asks_for_library_log(const Environment& environment) {
  const std::string traces = find_variable(environment, "TORCH_SHOW_CPP_STACKTRACES").value_or("");
  return find_variable(environment, kLevel) || (!traces.empty() && traces != "0");
}

void settle_library_log(LibraryLog wanted) {
  static std::mutex mutex;
  static int expected = kWarnings;
  const std::lock_guard lock(mutex);
  const Environment environment = process_environment();
  if (asks_for_library_log(environment)) {
    // A C++ program does not read the variable by itself; Python's torch calls this at its import.
    if (find_variable(environment, kLevel)) c10::initLogging();
  } else if (FLAGS_caffe2_log_level == expected) {
    FLAGS_caffe2_log_level = expected = static_cast<int>(wanted);
  }
}

}  // namespace lockstep::comm

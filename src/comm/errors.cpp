#include "comm/errors.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <gloo/common/error.h>

#include <mutex>
#include <new>

#include "lockstep/core/environment.hpp"

namespace lockstep::comm {
namespace {

/// Removes Gloo's source location from the reason: it does not help a reader of a job's log.
std::string append_reason(const std::string& what, const std::string& reason) {
  const auto location_end = reason.starts_with("[/") ? reason.find("] ") : std::string::npos;
  return what + ": " + (location_end == std::string::npos ? reason : reason.substr(location_end + 2));
}

constexpr int kWarnings = 1;  // LibTorch's default.
constexpr const char* kLevel = "TORCH_CPP_LOG_LEVEL";

/// Whether the user has configured LibTorch's own log.
bool asks_for_library_log(const Environment& environment) {
  const std::string traces = find_variable(environment, "TORCH_SHOW_CPP_STACKTRACES").value_or("");
  return find_variable(environment, kLevel) || (!traces.empty() && traces != "0");
}

}  // namespace

void rethrow_as_communication_error(const std::string& what) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const LibraryTimeout& error) {
    throw WaitTimedOut(append_reason(what, error.what()));
  } catch (const c10::DistStoreError& error) {
    throw WaitTimedOut(append_reason(what, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    throw ConnectionLost(append_reason(what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw ConnectionLost(append_reason(what, error.what()));
  }
}

void rethrow_lost_peer(const std::string& what) {
  try {
    throw;
  } catch (const c10::DistError&) {
    rethrow_as_communication_error(what);
  } catch (const gloo::Exception&) {
    rethrow_as_communication_error(what);
  } catch (const LibraryTimeout&) {
    rethrow_as_communication_error(what);
  }
}

void settle_library_log(LibraryLog wanted) {
  static std::mutex mutex;
  static int expected = kWarnings;
  const std::lock_guard lock(mutex);
  const Environment environment = process_environment();
  if (asks_for_library_log(environment)) {
    // A C++ program does not read the variable by itself; Python's torch does so on import.
    if (find_variable(environment, kLevel)) c10::initLogging();
  } else if (FLAGS_caffe2_log_level == expected) {
    FLAGS_caffe2_log_level = expected = static_cast<int>(wanted);
  }
}

}  // namespace lockstep::comm

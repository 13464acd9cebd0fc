#include "errors.hpp"

#include <c10/util/Exception.h>
#include <gloo/common/error.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

bool speaks_of_timeout(const std::string& text) {
  for (const auto* words : {"imed out", "imeout", "wait timeout"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

/// Gloo puts the place in its source in front, which tells nothing to who reads a job's log.
std::string without_place(const std::string& text) {
  const auto end = text.starts_with("[/") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

[[noreturn]] void rethrow(const std::string& what, const std::string& reason) {
  const std::string text = what + ": " + without_place(reason);
  if (speaks_of_timeout(reason)) throw TimeoutError(text);
  throw CommunicationError(text);
}

}  // namespace

void rethrow_as_communication_error(const std::string& what) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    rethrow(what, error.what_without_backtrace());
  } catch (const std::exception& error) {
    rethrow(what, error.what());
  }
}

void rethrow_lost_peer(const std::string& what) {
  try {
    throw;
  } catch (const c10::DistError& error) {
    rethrow(what, error.what_without_backtrace());
  } catch (const gloo::Exception& error) {
    rethrow(what, error.what());
  }
}

}  // namespace lockstep::comm

#include "errors.hpp"

#include <c10/util/Exception.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

bool speaks_of_timeout(const std::string& text) {
  for (const auto* words : {"imed out", "imeout", "wait timeout"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

[[noreturn]] void rethrow(const std::string& what, const std::string& reason) {
  const std::string text = what + ": " + reason;
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

}  // namespace lockstep::comm

#include "comm/errors.hpp"

#include <c10/util/Exception.h>
#include <gloo/common/error.h>

#include <new>

namespace lockstep::comm {
namespace {

/// Gloo puts the place in its source in front, which tells nothing to who reads a job's log.
std::string without_place(const std::string& text) {
  const auto end = text.starts_with("[/") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

std::string joined(const std::string& what, const std::string& reason) {
  return what + ": " + without_place(reason);
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
    throw WaitTimedOut(joined(what, error.what()));
  } catch (const c10::DistStoreError& error) {
    throw WaitTimedOut(joined(what, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    throw ConnectionLost(joined(what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw ConnectionLost(joined(what, error.what()));
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

}  // namespace lockstep::comm

#include "comm/cuda/nccl_communicators.hpp"

#include <fmt/core.h>

#include <exception>
#include <iostream>

namespace lockstep::comm {
namespace {

void abort_quietly(const NcclCommunicators::Backend& backend) noexcept {
  try {
    backend->abort();
  } catch (const std::exception&) {
    // There is a failure already, and it is the one to report.
  }
}

}  // namespace

NcclCommunicators::~NcclCommunicators() {
  if (std::uncaught_exceptions() > 0 || !end_.meet) abort_all();
  if (backends_.empty()) return;
  try {
    end_.synchronize();
    end_.meet();
    shut_down();
    end_.meet();
  } catch (const std::exception& error) {
    std::cerr << fmt::format(
                     "lockstep: warning: {}: the end of NCCL's communicators was not a clean one: {}\n",
                     end_.who, error.what())
              << std::flush;
    abort_all();
  }
}

void NcclCommunicators::abort(const Backend& backend) noexcept {
  if (std::erase(backends_, backend) > 0) abort_quietly(backend);
}

void NcclCommunicators::shut_down() {
  for (; !backends_.empty(); backends_.pop_back()) backends_.back()->shutdown();
}

void NcclCommunicators::abort_all() noexcept {
  for (; !backends_.empty(); backends_.pop_back()) abort_quietly(backends_.back());
}

}  // namespace lockstep::comm

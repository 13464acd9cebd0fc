#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/cluster/hostlist.hpp"
#include "core/cluster/scheduler_variables.hpp"
#include "lockstep/core/error.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Names are names: what was expanded expands to itself.
void check_hosts(std::string_view list) {
  const auto hosts = lockstep::expand_hostlist(list);
  require(hosts.size() <= lockstep::kMostHosts);
  std::string joined;
  for (const auto& host : hosts) {
    require(!host.empty() && host.find_first_of("[], \t\r\n") == std::string::npos);
    joined += (joined.empty() ? "" : ",") + host;
  }
  require(lockstep::expand_hostlist(joined) == hosts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check_hosts(text);
  } catch (const lockstep::UsageError&) {
  }
  try {
    for (const int entry : lockstep::variables::run_lengths("LIST", text)) require(entry >= 1);
  } catch (const lockstep::UsageError&) {
  }
  return 0;
}

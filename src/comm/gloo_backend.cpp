#include "gloo_backend.hpp"

#include <signal.h>

#include <sstream>

#include "compared_gloo.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

/// Bound to one address, or to the interfaces named: not to every interface, and not to whatever the host's
/// own name happens to resolve to. `interfaces` is a comma-separated list, as in PyTorch.
Devices make_devices(const std::string& interfaces, const std::string& address) {
  Devices devices;
  std::istringstream names(interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) {
    devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address.empty() ? "127.0.0.1" : address));
  }
  return devices;
}

std::string chosen_interfaces(const ProcessGroupOptions& options, int size) {
  if (size == 1) return "";  // A world of one needs no network.
  if (!options.network_interface.empty()) return options.network_interface;
  return find_variable(process_environment(), "GLOO_SOCKET_IFNAME").value_or("");
}

/// Gloo takes the certificates, and then opens connections that use none of them.
void refuse_false_encryption() {
  const auto transport = find_variable(process_environment(), "GLOO_DEVICE_TRANSPORT");
  if (!transport || *transport != "TCP_TLS") return;
  throw UsageError(
      "GLOO_DEVICE_TRANSPORT=TCP_TLS does not encrypt: LibTorch's Gloo sends plain text all the same. Unset "
      "it, "
      "and use a network that others do not reach, or an encrypted one (WireGuard, IPsec)");
}

/// Gloo writes to its connections in a way (writev) that ends the process by SIGPIPE, without a word, where
/// the other end has just gone; without the signal it is an error like any other. What the program itself has
/// chosen for the signal stays.
///
/// A handler that does nothing, for programs that this one starts: they would inherit it if the signal were
/// ignored.
void make_broken_connections_errors() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size, const ProcessGroupOptions& options,
                                                    const std::string& address,
                                                    const CallExchange::Names* compared) {
  refuse_false_encryption();
  if (size > 1) make_broken_connections_errors();
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices = make_devices(chosen_interfaces(options, size), address);
  if (compared == nullptr) return c10::make_intrusive<GuardedGloo>(store, rank, size, gloo);
  return c10::make_intrusive<ComparedGloo>(store, rank, size, gloo, *compared);
}

}  // namespace lockstep::comm

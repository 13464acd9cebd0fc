#pragma once

#include <map>
#include <string>

#include "net/address.hpp"
#include "net/store/server.hpp"

namespace lockstep::net {

/// Which plain clients are served.
class AccessPolicy {
 public:
  /// The options must live longer.
  explicit AccessPolicy(const ServerOptions& options) : options_(options) {}

  enum class Decision {
    serve,
    ask_peer,    // its host's agent says whether it is of our user
    ask_kernel,  // this host's kernel does
    refuse,
  };

  /// `peer` is the client's end of the connection.
  Decision decide(const Address& peer) const {
    if (!options_.plain_clients) return Decision::refuse;
    // The owner of a client on this host is known for certain; no admission of the host may weaken that.
    if (options_.is_local(peer)) return Decision::ask_kernel;
    if (!options_.every_host && hosts_.count(peer.host()) == 0) return Decision::refuse;
    return options_.verify_peer_uid ? Decision::ask_peer : Decision::serve;
  }

  void allow(const Address& host) { ++hosts_[host.host()]; }
  void forget(const Address& host) {
    const auto found = hosts_.find(host.host());
    if (found != hosts_.end() && --found->second <= 0) hosts_.erase(found);
  }

 private:
  const ServerOptions& options_;
  std::map<std::string, int> hosts_;
};

}  // namespace lockstep::net

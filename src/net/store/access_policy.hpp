#pragma once

#include <functional>
#include <map>
#include <string>

#include "net/address.hpp"
#include "net/store/server.hpp"

namespace lockstep::net {

/// Which plain clients are served.
class AccessPolicy {
 public:
  explicit AccessPolicy(const ServerOptions& options)
      : plain_clients_(options.plain_clients),
        every_host_(options.every_host),
        verify_peer_uid_(options.verify_peer_uid),
        is_local_(options.is_local) {}

  enum class Decision {
    serve,
    ask_peer,    // its host's agent says whether it is of our user
    ask_kernel,  // this host's kernel does
    refuse,
  };

  /// `peer` is the client's end of the connection.
  Decision decide(const Address& peer) const {
    if (!plain_clients_) return Decision::refuse;
    // The owner of a client on this host is known for certain; no admission of the host may weaken that.
    if (is_local_(peer)) return Decision::ask_kernel;
    if (!every_host_ && hosts_.count(peer.host()) == 0) return Decision::refuse;
    return verify_peer_uid_ ? Decision::ask_peer : Decision::serve;
  }

  void allow(const Address& host) { ++hosts_[host.host()]; }
  void forget(const Address& host) {
    const auto found = hosts_.find(host.host());
    if (found != hosts_.end() && --found->second <= 0) hosts_.erase(found);
  }

 private:
  bool plain_clients_;
  bool every_host_;
  bool verify_peer_uid_;
  std::function<bool(const Address&)> is_local_;
  std::map<std::string, int> hosts_;
};

}  // namespace lockstep::net

#pragma once

#include <functional>
#include <map>
#include <string>

#include "net/address.hpp"
#include "net/server.hpp"

namespace lockstep::net {

/// Which plain clients are served.
class AccessPolicy {
 public:
  explicit AccessPolicy(const ServerOptions& options)
      : plain_clients_(options.plain_clients),
        every_host_(options.every_host),
        verify_peer_uid_(options.verify_peer_uid),
        is_local_(options.is_local) {}

  enum class Verdict {
    serve,
    ask_peer,    // its host's agent says whether it is of our user
    ask_kernel,  // this host's kernel does
    refuse,
  };

  /// `peer` is the client's end of the connection.
  Verdict of(const Address& peer) const;

  void allow(const Address& host) { ++hosts_[host.host()]; }
  void forget(const Address& host);

 private:
  bool plain_clients_;
  bool every_host_;
  bool verify_peer_uid_;
  std::function<bool(const Address&)> is_local_;
  std::map<std::string, int> hosts_;
};

}  // namespace lockstep::net

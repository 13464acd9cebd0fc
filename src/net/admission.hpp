#pragma once

#include <map>
#include <string>

#include "net/address.hpp"

namespace lockstep::net {

/// Which plain clients are served.
class Admission {
 public:
  Admission(bool plain_clients, bool vouching) : plain_clients_(plain_clients), vouching_(vouching) {}

  enum class Verdict { serve, ask, refuse };

  /// `peer` is the client's end of the connection, `local` ours.
  Verdict of(const Address& peer, const Address& local) const;

  void admit(const Address& host) { ++hosts_[host.host()]; }
  void forget(const Address& host);

 private:
  bool plain_clients_;
  bool vouching_;
  std::map<std::string, int> hosts_;
};

}  // namespace lockstep::net

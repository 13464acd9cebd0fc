#include "net/access_policy.hpp"

namespace lockstep::net {

AccessPolicy::Verdict AccessPolicy::of(const Address& peer) const {
  if (!plain_clients_) return Verdict::refuse;
  // The owner of a client on this host is known for certain; no admission of the host may weaken that.
  if (is_local_(peer)) return Verdict::ask_kernel;
  if (!every_host_ && hosts_.count(peer.host()) == 0) return Verdict::refuse;
  return verify_peer_uid_ ? Verdict::ask_peer : Verdict::serve;
}

void AccessPolicy::forget(const Address& host) {
  const auto found = hosts_.find(host.host());
  if (found != hosts_.end() && --found->second <= 0) hosts_.erase(found);
}

}  // namespace lockstep::net

#include "comm/cuda/peer_access.hpp"

namespace lockstep::comm {

std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer)) {
  if (count < 2) return "";
  std::string pairs;
  bool all = true;
  for (int one = 0; one < count; ++one) {
    for (int other = one + 1; other < count; ++other) {
      if (can_access_peer(one, other) && can_access_peer(other, one)) {
        pairs += (pairs.empty() ? "" : ", ") + std::to_string(one) + "-" + std::to_string(other);
      } else {
        all = false;
      }
    }
  }
  if (all) return "all";
  return pairs.empty() ? "none" : pairs;
}

}  // namespace lockstep::comm

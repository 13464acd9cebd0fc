#include "net/deadline.hpp"

#include <cerrno>

namespace lockstep::net {

bool await_ready(int descriptor, short events, Deadline deadline) {
  pollfd entry{descriptor, events, 0};
  for (;;) {
    const auto left = left_until(deadline);
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;
    if (left == Milliseconds(0)) return false;
  }
}

}  // namespace lockstep::net

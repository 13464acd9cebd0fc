#include "shm/futex_event.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::shm {
namespace {

// Not FUTEX_PRIVATE: the word is another process's as well, at another address.
std::uint32_t* address_of(const std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint32_t>*>(&word));
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, net::Milliseconds limit) {
  const timespec time{static_cast<time_t>(limit.count() / 1000),
                      static_cast<long>(limit.count() % 1000) * 1'000'000};
  syscall(SYS_futex, address_of(word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, address_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::shm

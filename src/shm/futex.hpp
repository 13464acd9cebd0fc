#pragma once

#include <atomic>
#include <cstdint>

#include "net/deadline.hpp"

namespace lockstep::shm {

/// Sleeps while the word holds `expected`, at most for `limit`; may wake for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, net::Milliseconds limit);

/// Wakes everybody who sleeps on the word, in any process.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

/// Tells the CPU that this is a waiting loop.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

}  // namespace lockstep::shm

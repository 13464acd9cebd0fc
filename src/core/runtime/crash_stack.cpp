#include "core/runtime/crash_handler.hpp"

#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstddef>

namespace lockstep {
namespace {

std::atomic<bool> enabled{false};

/// The kernel keeps one such stack a thread, and a thread that has none handles a fault on the stack that
/// overflowed: it dies without a word.
class CrashStack {
 public:
  CrashStack() noexcept
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
  }
  ~CrashStack() {
    if (memory_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(memory_, kBytes);
  }
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  static constexpr std::size_t kBytes = 1 << 16;
  void* memory_;
};

}  // namespace

void enable_crash_stacks() noexcept { enabled = true; }

void use_crash_stack() noexcept {
  if (!enabled) return;
  static thread_local const CrashStack stack;
  static_cast<void>(stack);
}

}  // namespace lockstep

#pragma once

// Runs CUDA kernels on the host: the threads of a block as fibers, which take turns at barriers and shuffles
// only, in an order that is drawn anew each time. A thread that reads what another writes without a barrier
// between them so reads the old value in some runs, which a GPU may hide. Blocks run one after another, also
// in a random order.
//
// Include it once in a test, and then the sources of kernels/cuda, prelude.cu first, in one namespace.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace lockstep::testing {

struct Dimensions {
  unsigned x = 1, y = 1, z = 1;
};

/// One block at a time.
class BlockEmulator {
 public:
  static constexpr unsigned kLanes = 32;

  explicit BlockEmulator(unsigned seed) : random_(seed) {}

  /// Runs `thread` once for each thread of each block. Throws what a thread throws, and std::logic_error if
  /// some threads wait for others that have ended.
  void run(const Dimensions& grid, unsigned threads, const std::function<void()>& thread) {
    grid_dim = grid;
    block_dim = {threads};
    std::vector<unsigned> order(std::size_t{grid.x} * grid.y);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random_);
    for (const unsigned block : order) {
      block_index = {block % grid.x, block / grid.x};
      run_block(threads, thread);
    }
  }

  static BlockEmulator* current;
  static Dimensions thread_index, block_index, block_dim, grid_dim;

  void sync_block() { wait_for(fibers_.size(), block_waiting_); }

  /// What the lane `from` of this warp gave; all lanes call it.
  template <class T>
  T exchange(T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    Fiber& fiber = *fibers_[running_];
    // In turns: who goes on writes the other place, which nobody reads any more.
    const std::size_t place = fiber.exchanges++ % fiber.given.size();
    std::memcpy(&fiber.given[place], &value, sizeof(T));
    const std::size_t warp = running_ / kLanes, begin = warp * kLanes;
    const std::size_t lanes = std::min<std::size_t>(kLanes, fibers_.size() - begin);
    wait_for(lanes, warp_waiting_[warp]);
    T got = value;
    if (from < lanes) std::memcpy(&got, &fibers_[begin + from]->given[place], sizeof(T));
    return got;
  }

 private:
  static constexpr std::size_t kStack = std::size_t{1} << 17;

  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStack);
    jmp_buf again{};
    bool has_begun = false;
    bool has_ended = false;
    bool waits = false;
    std::array<std::uint64_t, 2> given{};
    std::size_t exchanges = 0;
  };

  void run_block(unsigned threads, const std::function<void()>& thread) {
    current = this;
    thread_ = &thread;
    failure_ = nullptr;
    fibers_.resize(threads);
    block_waiting_.clear();
    warp_waiting_.assign((threads + kLanes - 1) / kLanes, {});
    for (auto& fiber : fibers_) {
      if (!fiber) fiber = std::make_unique<Fiber>();
      fiber->has_begun = fiber->has_ended = fiber->waits = false;
      fiber->exchanges = 0;
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.get();
      fiber->context.uc_stack.ss_size = kStack;
      fiber->context.uc_link = nullptr;
      makecontext(&fiber->context, &BlockEmulator::begin_thread, 0);
    }
    for (;;) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < fibers_.size(); ++i) {
        if (!fibers_[i]->has_ended && !fibers_[i]->waits) ready.push_back(i);
      }
      if (ready.empty()) break;
      std::shuffle(ready.begin(), ready.end(), random_);
      for (const std::size_t index : ready) resume(index);
      if (failure_) break;
    }
    if (failure_) std::rethrow_exception(failure_);
    for (const auto& fiber : fibers_) {
      if (!fiber->has_ended) throw std::logic_error("threads wait at a barrier for others that have ended");
    }
  }

  // Later switches are jumps, which call no system. AddressSanitizer wants to know of each stack.
  void resume(std::size_t index) {
    running_ = index;
    thread_index = {static_cast<unsigned>(index)};
    Fiber& fiber = *fibers_[index];
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber.stack.get(), kStack);
    swapcontext(&scheduler_, &fiber.context);
    __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#else
    if (_setjmp(scheduler_again_) != 0) return;
    if (fiber.has_begun) _longjmp(fiber.again, 1);
    fiber.has_begun = true;
    setcontext(&fiber.context);
#endif
  }

  /// Back to the scheduler, until it resumes this fiber.
  void yield([[maybe_unused]] bool ends) {
    Fiber& fiber = *fibers_[running_];
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(ends ? nullptr : &fake_stack, scheduler_stack_, scheduler_stack_size_);
    swapcontext(&fiber.context, &scheduler_);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    if (_setjmp(fiber.again) == 0) _longjmp(scheduler_again_, 1);
#endif
  }

  static void begin_thread() {
    BlockEmulator& self = *current;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self.scheduler_stack_, &self.scheduler_stack_size_);
#endif
    try {
      (*self.thread_)();
    } catch (...) {
      self.failure_ = std::current_exception();
    }
    self.fibers_[self.running_]->has_ended = true;
    self.yield(true);
  }

  /// Returns when `count` fibers have called it with this list.
  void wait_for(std::size_t count, std::vector<std::size_t>& waiting) {
    waiting.push_back(running_);
    if (waiting.size() < count) {
      fibers_[running_]->waits = true;
      yield(false);
      return;
    }
    for (const std::size_t index : waiting) fibers_[index]->waits = false;
    waiting.clear();
    // Others may go first.
    yield(false);
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::size_t> block_waiting_;
  std::vector<std::vector<std::size_t>> warp_waiting_;
  const std::function<void()>* thread_ = nullptr;
  std::exception_ptr failure_;
  std::size_t running_ = 0;
  ucontext_t scheduler_{};
  jmp_buf scheduler_again_{};
#if defined(__SANITIZE_ADDRESS__)
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_size_ = 0;
#endif
};

inline BlockEmulator* BlockEmulator::current = nullptr;
inline Dimensions BlockEmulator::thread_index, BlockEmulator::block_index, BlockEmulator::block_dim,
    BlockEmulator::grid_dim;

}  // namespace lockstep::testing

// The words of CUDA that the kernels use.
// NOLINTBEGIN
#define __global__
#define __device__ inline
#define __forceinline__
#define __shared__ static
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::lockstep::testing::BlockEmulator::thread_index)
#define blockIdx (::lockstep::testing::BlockEmulator::block_index)
#define blockDim (::lockstep::testing::BlockEmulator::block_dim)
#define gridDim (::lockstep::testing::BlockEmulator::grid_dim)

inline void __syncthreads() { lockstep::testing::BlockEmulator::current->sync_block(); }
inline void __threadfence() {}
/// Blocks run one after another.
inline unsigned atomicInc(unsigned* counter, unsigned last) {
  const unsigned before = *counter;
  *counter = before >= last ? 0 : before + 1;
  return before;
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int with) {
  using lockstep::testing::BlockEmulator;
  const unsigned lane = threadIdx.x % BlockEmulator::kLanes;
  return BlockEmulator::current->exchange(value, lane ^ static_cast<unsigned>(with));
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return lockstep::testing::BlockEmulator::current->exchange(value, static_cast<unsigned>(from));
}
#define __expf(value) std::exp(value)
#define __logf(value) std::log(value)
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float value) { return std::sqrt(value); }

inline float emulated_half_to_float(unsigned short bits) {
  return c10::detail::fp16_ieee_to_fp32_value(bits);
}
inline unsigned short emulated_float_to_half(float value) {
  return c10::detail::fp16_ieee_from_fp32_value(value);
}
inline unsigned short emulated_float_to_bfloat16(float value) {
  return c10::detail::round_to_nearest_even(value);
}
inline void require(bool holds, const char* expected) {
  if (!holds) throw std::invalid_argument(expected);
}
// NOLINTEND

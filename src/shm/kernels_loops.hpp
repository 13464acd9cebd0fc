// The loops of the reductions, compiled once per instruction set: see kernels_*.cpp. Everything is in an
// anonymous namespace, and no function of the standard library that could be emitted out of line is called:
// the linker would keep only one copy of it, possibly with instructions that this CPU does not support.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "shm/kernels_half.hpp"

namespace lockstep::shm {
namespace {

// If a destination is also a source, it has the same elements at the same indices: iterations are
// independent.
#if defined(__clang__)
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif

/// Integers are added and multiplied in an unsigned type at least as wide as int, so that overflow wraps.
template <class T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using Type = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
};
template <class T>
struct Arithmetic<T, false> {
  using Type = T;
};

constexpr auto kSum = [](auto a, auto b) {
  using Wide = typename Arithmetic<decltype(a)>::Type;
  return static_cast<decltype(a)>(static_cast<Wide>(a) + static_cast<Wide>(b));
};
constexpr auto kProduct = [](auto a, auto b) {
  using Wide = typename Arithmetic<decltype(a)>::Type;
  return static_cast<decltype(a)>(static_cast<Wide>(a) * static_cast<Wide>(b));
};
constexpr auto kMin = [](auto a, auto b) { return (b < a || b != b) ? b : a; };  // b != b: a NaN wins.
constexpr auto kMax = [](auto a, auto b) { return (b > a || b != b) ? b : a; };
constexpr auto kAnd = [](auto a, auto b) { return static_cast<decltype(a)>(a & b); };
constexpr auto kOr = [](auto a, auto b) { return static_cast<decltype(a)>(a | b); };
constexpr auto kXor = [](auto a, auto b) { return static_cast<decltype(a)>(a ^ b); };

constexpr std::size_t kBlock = 1024;

template <class T>
void divide(T* values, T divisor, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) values[i] = values[i] / divisor;
}

template <class T, auto kOp>
void combine(T* to, const T* a, const T* b, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = kOp(a[i], b[i]);
}

template <class T, auto kOp>
void combine_twice(T* to, T* also, const T* a, const T* b, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const T value = kOp(a[i], b[i]);
    to[i] = value;
    also[i] = value;
  }
}

template <class T>
const T* part(const void* whole, std::size_t start) {
  return static_cast<const T*>(whole) + start;
}
template <class T>
T* part(void* whole, std::size_t start) {
  return static_cast<T*>(whole) + start;
}

/// `values` may be the first destination.
template <class T>
void copy_out(const T* values, void* const* destinations, int first, int count, std::size_t start,
              std::size_t length) {
  for (int d = first; d < count; ++d)
    std::memcpy(part<T>(destinations[d], start), values, length * sizeof(T));
}

/// Destinations may also be sources, so nothing is written before the last source is read.
template <class T, auto kOp, bool kAverage>
void reduce_block(const void* const* sources, int source_count, void* const* destinations,
                  int destination_count, std::size_t start, std::size_t length) {
  alignas(64) T sum[kBlock];
  const T* last = part<T>(sources[source_count - 1], start);
  const T* before = part<T>(sources[0], start);
  for (int s = 1; s + 1 < source_count; ++s) {
    combine<T, kOp>(sum, before, part<T>(sources[s], start), length);
    before = sum;
  }
  combine<T, kOp>(sum, before, last, length);
  if constexpr (kAverage) divide<T>(sum, static_cast<T>(source_count), length);
  copy_out<T>(sum, destinations, 0, destination_count, start, length);
}

template <class T, auto kOp, bool kAverage>
void reduce_plain(const void* const* sources, int source_count, void* const* destinations,
                  int destination_count, std::size_t elements) {
  if (source_count == 1)
    return copy_out<T>(part<T>(sources[0], 0), destinations, 0, destination_count, 0, elements);
  if (source_count == 2 && !kAverage && destination_count <= 2) {
    const T* a = part<T>(sources[0], 0);
    const T* b = part<T>(sources[1], 0);
    T* to = part<T>(destinations[0], 0);
    if (destination_count == 1) return combine<T, kOp>(to, a, b, elements);
    return combine_twice<T, kOp>(to, part<T>(destinations[1], 0), a, b, elements);
  }
  for (std::size_t start = 0; start < elements; start += kBlock) {
    const std::size_t length = elements - start < kBlock ? elements - start : kBlock;
    reduce_block<T, kOp, kAverage>(sources, source_count, destinations, destination_count, start, length);
  }
}

/// Half precision: accumulated as float, rounded once.
template <class Half, auto kOp, bool kAverage>
void reduce_half(const void* const* sources, int source_count, void* const* destinations,
                 int destination_count, std::size_t elements) {
  using Bits = std::uint16_t;
  alignas(64) float sum[kBlock], next[kBlock];
  alignas(64) Bits rounded[kBlock];
  for (std::size_t start = 0; start < elements; start += kBlock) {
    const std::size_t length = elements - start < kBlock ? elements - start : kBlock;
    Half::widen(sum, part<Bits>(sources[0], start), length);
    for (int s = 1; s < source_count; ++s) {
      Half::widen(next, part<Bits>(sources[s], start), length);
      combine<float, kOp>(sum, sum, next, length);
    }
    if constexpr (kAverage) divide<float>(sum, static_cast<float>(source_count), length);
    Half::narrow(rounded, sum, length);
    copy_out<Bits>(rounded, destinations, 0, destination_count, start, length);
  }
}

template <class T, auto kOp, bool kAverage = false>
constexpr Reducer reducer_of() {
  if constexpr (std::is_arithmetic_v<T>)
    return &reduce_plain<T, kOp, kAverage>;
  else
    return &reduce_half<T, kOp, kAverage>;
}

/// The columns have the order of the enumeration Reduction.
template <class T>
constexpr void fill(Reducer (&row)[kReductions]) {
  row[0] = reducer_of<T, kSum>();
  row[2] = reducer_of<T, kProduct>();
  row[3] = reducer_of<T, kMin>();
  row[4] = reducer_of<T, kMax>();
  if constexpr (std::is_integral_v<T>) {
    row[5] = reducer_of<T, kAnd>();
    row[6] = reducer_of<T, kOr>();
    row[7] = reducer_of<T, kXor>();
  } else {
    row[1] = reducer_of<T, kSum, true>();
  }
}

/// Bytes of 0 and 1; results are 0 or 1 too.
constexpr void fill_booleans(Reducer (&row)[kReductions]) {
  row[0] = row[4] = row[6] = &reduce_plain<std::uint8_t, kOr, false>;
  row[2] = row[3] = row[5] = &reduce_plain<std::uint8_t, kAnd, false>;
  row[7] = &reduce_plain<std::uint8_t, kXor, false>;
}

constexpr Kernels make_kernels(const char* name) {
  Kernels set{name, {}};
  fill<std::uint8_t>(set.reducers[0]);
  fill<std::int8_t>(set.reducers[1]);
  fill<std::int16_t>(set.reducers[2]);
  fill<std::int32_t>(set.reducers[3]);
  fill<std::int64_t>(set.reducers[4]);
  fill<Float16>(set.reducers[5]);
  fill<BFloat16>(set.reducers[6]);
  fill<float>(set.reducers[7]);
  fill<double>(set.reducers[8]);
  fill_booleans(set.reducers[9]);
  return set;
}

}  // namespace
}  // namespace lockstep::shm

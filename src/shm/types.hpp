#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::shm {

/// The type of an element. `bytes`: anything that is copied but never reduced.
enum class Dtype : std::uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64, boolean, bytes };
inline constexpr int kDtypes = 11;

enum class Reduction : std::uint8_t { sum, avg, product, min, max, bit_and, bit_or, bit_xor, none };
inline constexpr int kReductions = 8;

enum class Operation : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier
};

std::size_t size_of(Dtype dtype);
const char* name_of(Dtype dtype);
const char* name_of(Reduction reduction);
const char* name_of(Operation operation);

struct Elements {
  std::size_t count;
  Dtype dtype;

  std::size_t bytes() const { return count * size_of(dtype); }
};

/// The fingerprint of a collective call, which all ranks compare before data is communicated. It has no
/// padding.
struct Call {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::int32_t root = -1;
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::bytes;
  Reduction reduction = Reduction::none;
  std::uint8_t version = 1;

  bool operator==(const Call&) const = default;
};

inline Call call_of(Operation operation, Elements elements, Reduction reduction = Reduction::none,
                    int root = -1) {
  return {.count = elements.count,
          .root = root,
          .operation = operation,
          .dtype = elements.dtype,
          .reduction = reduction};
}

/// "all_reduce #3 (float32, 1000 elements, sum)".
std::string describe(const Call& call);

/// A rank and its call, for messages.
struct Caller {
  std::string name;
  std::string call;
};
/// The error message for two ranks whose calls differ. `who`: prefix of messages.
std::string disagreement(const std::string& who, const Caller& one, const Caller& other);

}  // namespace lockstep::shm

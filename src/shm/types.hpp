#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::shm {

/// What an element is. `bytes` stands for everything that is moved and never reduced.
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
  barrier,
  send,
  recv,
  all_reduce_sparse
};

std::size_t size_of(Dtype dtype);
const char* name_of(Dtype dtype);
const char* name_of(Reduction reduction);
const char* name_of(Operation operation);

}  // namespace lockstep::shm

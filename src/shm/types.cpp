#include "shm/types.hpp"

#include <fmt/core.h>

#include <array>

namespace lockstep::shm {
namespace {

struct DtypeFacts {
  const char* name;
  std::size_t size;
};

constexpr std::array<DtypeFacts, kDtypes> kFacts{{{"uint8", 1},
                                                  {"int8", 1},
                                                  {"int16", 2},
                                                  {"int32", 4},
                                                  {"int64", 8},
                                                  {"float16", 2},
                                                  {"bfloat16", 2},
                                                  {"float32", 4},
                                                  {"float64", 8},
                                                  {"bool", 1},
                                                  {"bytes", 1}}};
constexpr std::array<const char*, 9> kReductionNames{"sum",     "avg",    "product", "min", "max",
                                                     "bit_and", "bit_or", "bit_xor", "none"};
constexpr std::array<const char*, 9> kOperationNames{"all_reduce",     "broadcast",  "reduce",
                                                     "all_gather",     "gather",     "scatter",
                                                     "reduce_scatter", "all_to_all", "barrier"};
static_assert(kOperationNames.size() == static_cast<std::size_t>(Operation::barrier) + 1);

/// Values from another process may be out of range.
template <class Table, class Value>
std::size_t index_in(const Table& table, Value value) {
  const auto index = static_cast<std::size_t>(value);
  return index < table.size() ? index : table.size() - 1;
}

}  // namespace

std::size_t size_of(Dtype dtype) { return kFacts[index_in(kFacts, dtype)].size; }
const char* name_of(Dtype dtype) { return kFacts[index_in(kFacts, dtype)].name; }
const char* name_of(Reduction reduction) { return kReductionNames[index_in(kReductionNames, reduction)]; }
const char* name_of(Operation operation) { return kOperationNames[index_in(kOperationNames, operation)]; }

std::string describe(const Call& call) {
  std::string text = fmt::format("{} #{}", name_of(call.operation), call.sequence);
  if (call.operation == Operation::barrier) return text;
  text += fmt::format(" ({}", name_of(call.dtype));
  if (call.operation != Operation::all_to_all) text += fmt::format(", {} elements", call.count);
  if (call.reduction != Reduction::none) text += fmt::format(", {}", name_of(call.reduction));
  if (call.root >= 0) text += fmt::format(", root {}", call.root);
  return text + ")";
}

std::string disagreement(const std::string& who, const Caller& one, const Caller& other) {
  return fmt::format(
      "{}: ranks called different collectives: {} called {}, {} called {}. Every rank must make the same "
      "calls in "
      "the same order",
      who, one.name, one.call, other.name, other.call);
}

}  // namespace lockstep::shm

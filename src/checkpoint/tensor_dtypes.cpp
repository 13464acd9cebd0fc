#include "checkpoint/tensor_dtypes.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::safetensors {
namespace {

struct NamedType {
  const char* name;
  at::ScalarType type;
};

constexpr std::array kTypes = {
    NamedType{"F64", at::kDouble},
    NamedType{"F32", at::kFloat},
    NamedType{"F16", at::kHalf},
    NamedType{"BF16", at::kBFloat16},
    NamedType{"I64", at::kLong},
    NamedType{"I32", at::kInt},
    NamedType{"I16", at::kShort},
    NamedType{"I8", at::kChar},
    NamedType{"U8", at::kByte},
    NamedType{"U16", at::kUInt16},
    NamedType{"U32", at::kUInt32},
    NamedType{"U64", at::kUInt64},
    NamedType{"BOOL", at::kBool},
    NamedType{"C64", at::kComplexFloat},
    NamedType{"F8_E5M2", at::kFloat8_e5m2},
    NamedType{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    NamedType{"F8_E4M3", at::kFloat8_e4m3fn},
    NamedType{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    NamedType{"F8_E8M0", at::kFloat8_e8m0fnu},
};

}  // namespace

const char* name_of_dtype(at::ScalarType type) noexcept {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& known) { return known.type == type; });
  return found == kTypes.end() ? nullptr : found->name;
}

at::ScalarType scalar_type_of(std::string_view name) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& known) { return known.name == name; });
  if (found == kTypes.end()) throw DataError("LibTorch has no dtype for '" + std::string(name) + "'");
  return found->type;
}

}  // namespace lockstep::safetensors

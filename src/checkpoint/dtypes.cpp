#include "checkpoint/dtypes.hpp"

#include <algorithm>
#include <array>

namespace lockstep::safetensors {
namespace {

/// In the order of a file: the reference implementation writes its dtypes from the last declared to the
/// first.
constexpr std::array kDtypes = {
    Dtype{"U64", 8, "torch.uint64", ""},
    Dtype{"I64", 8, "torch.int64", "torch.LongStorage"},
    Dtype{"F64", 8, "torch.float64", "torch.DoubleStorage"},
    Dtype{"C64", 8, "torch.complex64", "torch.ComplexFloatStorage"},
    Dtype{"F32", 4, "torch.float32", "torch.FloatStorage"},
    Dtype{"U32", 4, "torch.uint32", ""},
    Dtype{"I32", 4, "torch.int32", "torch.IntStorage"},
    Dtype{"BF16", 2, "torch.bfloat16", "torch.BFloat16Storage"},
    Dtype{"F16", 2, "torch.float16", "torch.HalfStorage"},
    Dtype{"U16", 2, "torch.uint16", ""},
    Dtype{"I16", 2, "torch.int16", "torch.ShortStorage"},
    Dtype{"F8_E5M2FNUZ", 1, "torch.float8_e5m2fnuz", ""},
    Dtype{"F8_E4M3FNUZ", 1, "torch.float8_e4m3fnuz", ""},
    Dtype{"F8_E8M0", 1, "torch.float8_e8m0fnu", ""},
    Dtype{"F8_E4M3", 1, "torch.float8_e4m3fn", ""},
    Dtype{"F8_E5M2", 1, "torch.float8_e5m2", ""},
    Dtype{"I8", 1, "torch.int8", "torch.CharStorage"},
    Dtype{"U8", 1, "torch.uint8", "torch.ByteStorage"},
    Dtype{"BOOL", 1, "torch.bool", "torch.BoolStorage"},
};

template <class Condition>
const Dtype* find_where(const Condition& condition) noexcept {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), condition);
  return found == kDtypes.end() ? nullptr : &*found;
}

}  // namespace

int Dtype::order() const noexcept { return static_cast<int>(find_dtype(name) - kDtypes.data()); }

const Dtype* find_dtype(std::string_view name) noexcept {
  return find_where([name](const Dtype& dtype) { return dtype.name == name; });
}

const Dtype* find_python_dtype(std::string_view name) noexcept {
  if (name.empty()) return nullptr;
  if (name == "torch.storage.UntypedStorage" || name == "torch.UntypedStorage") return find_dtype("U8");
  return find_where([name](const Dtype& dtype) { return dtype.torch == name || dtype.storage == name; });
}

}  // namespace lockstep::safetensors

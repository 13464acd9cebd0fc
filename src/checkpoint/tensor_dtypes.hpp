#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

namespace lockstep::safetensors {

/// The format's name of a dtype ("F32"); null if it has none.
const char* name_of_dtype(at::ScalarType type) noexcept;

/// The dtype of a name that find_dtype() knows.
at::ScalarType scalar_type_of(std::string_view name);

}  // namespace lockstep::safetensors

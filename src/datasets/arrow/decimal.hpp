#pragma once

#include <cstdint>
#include <string>

#include "lockstep/datasets/array_data.hpp"

namespace lockstep::arrow_file {

/// The exact number of a row of decimals, as Python's decimal.Decimal prints it: "-12.30".
std::string decimal_text(const ArrayData& array, std::int64_t row);

}  // namespace lockstep::arrow_file

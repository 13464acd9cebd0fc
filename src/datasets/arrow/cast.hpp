#pragma once

#include <cstdint>
#include <string>

#include "lockstep/datasets/array_data.hpp"

namespace lockstep::arrow_file {

/// The values as another type, by Arrow's kernels: between numbers, from booleans and integers to text,
/// between text and binary, and lists of these. Null for any other pair of types, and where a value does not
/// fit exactly: what is to become of it, or its error, is the caller's.
ArrayPointer cast(const ArrayPointer& array, const DataType& type);

/// The exact number of a row of decimals, as Python's decimal.Decimal prints it: "-12.30".
std::string decimal_text(const ArrayData& array, std::int64_t row);

}  // namespace lockstep::arrow_file

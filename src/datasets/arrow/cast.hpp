#pragma once

#include "lockstep/datasets/array_data.hpp"

namespace lockstep::arrow_file {

/// The values as another type, by Arrow's kernels: between numbers, from booleans and integers to text,
/// between text and binary, and lists of these. Null for any other pair of types, and where a value does not
/// fit exactly: what is to become of it, or its error, is the caller's.
ArrayPointer cast(const ArrayPointer& array, const DataType& type);

}  // namespace lockstep::arrow_file

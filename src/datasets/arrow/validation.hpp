#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <string>

namespace lockstep::arrow_file {

// What Arrow returns from foreign bytes must be verified before it is used: a wrong length or offset in it
// makes Arrow abort the process (ARROW_CHECK in a slice), or read memory that is not the array's.

/// Why the array must not be read: a buffer that is too short, lengths that contradict each other, offsets
/// that decrease or leave the values, at any depth. Empty if it is sound. Reads offsets, not values: text is
/// not checked to be UTF-8.
std::string damage_of(const arrow::ArrayData& array);

/// The array, with the lengths that lists and structures give to the arrays of nulls inside them, at any
/// depth: Arrow's JSON parser makes them too short. Such arrays have a length and nothing else.
std::shared_ptr<arrow::ArrayData> with_null_lengths(const std::shared_ptr<arrow::ArrayData>& array);

}  // namespace lockstep::arrow_file

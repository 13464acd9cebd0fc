#include "cast.hpp"

#include <arrow/array.h>
#include <arrow/array/data.h>
#include <arrow/compute/cast.h>

#include "bridge.hpp"

namespace lockstep::arrow_file {
namespace {

bool is_number(const DataType& type) {
  return type.is_integer() || type.kind() == TypeKind::float32 || type.kind() == TypeKind::float64;
}

/// Whether Arrow's result is ours, value for value. Left out is what differs: numbers read from text (signs,
/// infinities) and text made of floats.
bool is_same_for_both(const DataType& from, const DataType& to) {
  const bool to_text = to.kind() == TypeKind::utf8 || to.kind() == TypeKind::large_utf8;
  if (from == to) return true;
  if (from.is_text_or_binary()) return to.is_text_or_binary();
  if (from.kind() == TypeKind::boolean) return is_number(to) || to_text;
  if (is_number(from))
    return is_number(to) || to.kind() == TypeKind::boolean || (to_text && from.is_integer());
  const bool lists = from.kind() == TypeKind::list || from.kind() == TypeKind::large_list;
  return lists && from.kind() == to.kind() && is_same_for_both(from.element(), to.element());
}

}  // namespace

ArrayPointer cast(const ArrayPointer& array, const DataType& type) {
  if (!is_same_for_both(array->type, type)) return nullptr;
  const auto made = arrow::compute::Cast(arrow::MakeArray(to_arrow(array)), to_arrow(type));
  return made.ok() ? from_arrow((*made).array(), Location("memory", "a cast")) : nullptr;
}

}  // namespace lockstep::arrow_file

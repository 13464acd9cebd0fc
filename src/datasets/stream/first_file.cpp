#include "datasets/stream/first_file.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/readers/packed_file.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::stream {
namespace {

bool has_times(const DataType& type) {
  bool found = false;
  arrow_file::with_parts(type, [&](const DataType& part) {
    found = found || part.is_temporal();
    return part;
  });
  return found;
}

}  // namespace

bool has_types(FileFormat format) { return format == FileFormat::parquet || format == FileFormat::arrow; }

ArrowDataset FirstFile::with_its_units(ArrowDataset piece) {
  const bool any = std::ranges::any_of(piece.features().items(),
                                       [](const auto& item) { return has_times(item.second.type()); });
  if (!any) return piece;
  std::vector<std::pair<std::string, Column>> columns;
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& [name, column] : piece.columns()) {
    const bool is_known = has_times(column.type()) && features().contains(name);
    const auto& type = is_known ? features()[name].type() : column.type();
    const bool other_unit =
        type != column.type() && arrow_file::differs_in_layout_only(*type.arrow(), *column.type().arrow());
    items.emplace_back(name, other_unit ? Feature(type) : piece.features()[name]);
    try {
      columns.emplace_back(name, other_unit ? table::converted_column(column, Feature(type), name) : column);
    } catch (const UsageError& error) {
      throw DataError(fmt::format("the column '{}' is {}, and in '{}', the first file of the stream, {}: {}",
                                  name, column.type().text(), path_.string(), type.text(), error.what()));
    }
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(items)));
}

Features FirstFile::read_features() const {
  const auto format = readers::format_of(path_, options_);
  if (!has_types(format)) return {};
  const readers::UnpackedFile unpacked(path_, false);
  if (format == FileFormat::arrow)
    return readers::with_options(readers::read_arrow_file(unpacked.path(), options_.trusted), options_)
        .features();
  return readers::row_file(path_, format, options_)
      .open(unpacked.path(), readers::Types::of_the_beginning)
      ->features();
}

const Features& FirstFile::features() {
  std::call_once(read_, [this] {
    try {
      features_ = read_features();
    } catch (const DataError&) {
      // The pass that reads this file reports it.
    }
  });
  return features_;
}

}  // namespace lockstep::stream

#include <arrow/array/array_base.h>

#include "datasets/readers/readers.hpp"

namespace lockstep::readers {
namespace {

void read_as(const OpenRows& open, Types types, const std::function<TakePiece(const Features&)>& begin) {
  const auto source = open(types);
  const auto take = begin(source->features());
  for (auto piece = source->next(); !piece.empty(); piece = source->next()) {
    const auto rows = piece.front()->length();
    take(std::move(piece), rows);
  }
}

}  // namespace

void for_each_piece(const OpenRows& open, const std::function<TakePiece(const Features&)>& begin) {
  try {
    read_as(open, Types::of_the_beginning, begin);
  } catch (const TypesTooNarrow&) {
    read_as(open, Types::of_all_rows, begin);
  }
}

ArrowDataset read_all(const OpenRows& open) {
  Features features;
  std::vector<std::vector<table::Chunk>> chunks;
  for_each_piece(open, [&](const Features& found) {
    features = found;
    chunks.assign(features.size(), {});
    return [&](std::vector<ArrayPointer> columns, std::int64_t) {
      for (std::size_t index = 0; index < columns.size(); ++index)
        chunks[index].push_back({std::move(columns[index])});
    };
  });
  std::vector<std::pair<std::string, Column>> columns;
  for (std::size_t index = 0; index < features.size(); ++index) {
    const auto& [name, feature] = features.items()[index];
    columns.emplace_back(
        name, Column(std::make_shared<const ColumnData>(feature.type(), std::move(chunks[index]))));
  }
  return ArrowDataset::from_columns(std::move(columns), features);
}

}  // namespace lockstep::readers

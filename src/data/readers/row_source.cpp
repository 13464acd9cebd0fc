#include "lockstep/data/column_builder.hpp"
#include "readers.hpp"

namespace lockstep::readers {

ArrowDataset read_all(RowSource& source) {
  const auto& items = source.features().items();
  std::vector<std::vector<ArrayPointer>> chunks(items.size());
  for (auto piece = source.next(); !piece.empty(); piece = source.next()) {
    for (std::size_t place = 0; place < piece.size(); ++place)
      chunks[place].push_back(std::move(piece[place]));
  }
  std::vector<std::pair<std::string, Column>> columns;
  for (std::size_t place = 0; place < items.size(); ++place) {
    auto data = std::make_shared<const ChunkedArray>(items[place].second.type(), std::move(chunks[place]));
    const auto rows = data->size();
    columns.emplace_back(items[place].first, Column(std::move(data), RowMap(0, rows)));
  }
  return ArrowDataset::from_columns(std::move(columns), source.features());
}

}  // namespace lockstep::readers

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "datasets/stream/row_pass.hpp"

namespace lockstep::stream {

/// The rows of one shard, from its beginning.
class ShardRows {
 public:
  virtual ~ShardRows() = default;
  virtual std::optional<Row> next() = 0;
  virtual std::int64_t skip(std::int64_t count) = 0;
};

/// Opens a shard. Throws DataError.
using OpenShard = std::function<std::unique_ptr<ShardRows>(std::int64_t shard)>;

}  // namespace lockstep::stream

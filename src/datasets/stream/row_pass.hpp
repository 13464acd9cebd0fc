#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/datasets/value.hpp"

namespace lockstep::stream {

using Row = Value::Fields;
using Json = nlohmann::json;

/// The rows of one pass, after one operation of a stream. One thread at a time.
class RowPass {
 public:
  virtual ~RowPass() = default;
  virtual std::optional<Row> next() = 0;
  /// Skips rows, without creating them if possible. Returns how many were skipped: fewer than `count` at the
  /// end.
  virtual std::int64_t skip(std::int64_t count);
  /// The position: a new pass that loads it continues with the next row.
  virtual Json state() const = 0;
  /// Called before the first row. Throws Json::exception for an invalid state.
  virtual void load(const Json& state) = 0;
};

using PassPointer = std::unique_ptr<RowPass>;

/// A number of rows or shards in a state. Throws UsageError if it is below 0 or above `most`.
std::int64_t number_in(const Json& state, const char* name,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());

}  // namespace lockstep::stream

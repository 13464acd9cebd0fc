#pragma once

#include <map>
#include <vector>

#include "lockstep/data/array_data.hpp"
#include "schema.hpp"

namespace lockstep::arrow_file {

/// The values behind the numbers of columns with dictionaries, by the dictionaries' ids.
using Dictionaries = std::map<std::int64_t, ArrayPointer>;

/// A RecordBatch table and the bytes that it describes.
struct BatchMessage {
  FlatTable table;
  Buffer body;
};

/// Reads the columns of a record batch: views of the body where they lie on the right addresses, copies
/// elsewhere. Checks every length and, unless `trusted`, every offset; throws DataError, naming the column.
std::vector<ArrayPointer> read_batch(const BatchMessage& message, const std::vector<FileField>& fields,
                                     const Dictionaries& dictionaries, bool trusted, const Place& place);

/// The field whose dictionary has this id, as a column of its values; nullptr when there is none.
const FileField* find_dictionary(const std::vector<FileField>& fields, std::int64_t id);

}  // namespace lockstep::arrow_file

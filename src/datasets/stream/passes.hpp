#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/stream/row_pass.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"

namespace lockstep::stream {

PassPointer map_pass(PassPointer source, IterableDataset::MapFunction function,
                     std::vector<std::string> remove_columns);
PassPointer filter_pass(PassPointer source, IterableDataset::KeepFunction keep);
PassPointer take_pass(PassPointer source, std::int64_t count);
PassPointer skip_pass(PassPointer source, std::int64_t count);
PassPointer batch_pass(PassPointer source, std::int64_t batch_size, bool drop_last);
/// Row `offset` of every `step` rows.
PassPointer step_pass(PassPointer source, std::int64_t step, std::int64_t offset);
PassPointer shuffle_pass(PassPointer source, std::int64_t buffer_size, std::uint64_t seed);

}  // namespace lockstep::stream

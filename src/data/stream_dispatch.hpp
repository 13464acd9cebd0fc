#pragma once

#include <functional>
#include <memory>

#include "data/stream_pass.hpp"

namespace lockstep {

/// Distributes the batches that rank 0 reads as slices over all ranks, like Accelerate's
/// DataLoaderDispatcher. `batches` and `first`, which reads the first batch again, are only set on rank 0.
std::unique_ptr<StreamPass> dispatched_stream(std::unique_ptr<StreamPass> batches,
                                              std::function<Batch()> first, const StreamPassOptions& options);

}  // namespace lockstep

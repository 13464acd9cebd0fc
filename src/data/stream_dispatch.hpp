#pragma once

#include <functional>
#include <memory>

#include "stream_pass.hpp"

namespace lockstep {

/// The batches that rank 0 reads, in slices for all ranks: Accelerate's DataLoaderDispatcher. `batches` and
/// `first`, which reads the first batch once more, are rank 0's; the others have none.
std::unique_ptr<StreamPass> dispatched_stream(std::unique_ptr<StreamPass> batches,
                                              std::function<Batch()> first, const StreamPassOptions& options);

}  // namespace lockstep

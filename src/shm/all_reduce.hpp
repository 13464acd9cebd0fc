#pragma once

#include "shm/step_sync.hpp"

namespace lockstep::shm {

/// In place, as the others of collectives.hpp. If the buffers of all ranks are in their heaps, they are read
/// and written directly.
void all_reduce(StepSync& sync, const Heap& heap, void* data, Elements elements, Reduction reduction);

}  // namespace lockstep::shm

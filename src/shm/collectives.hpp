#pragma once

#include "shm/all_reduce.hpp"
#include "shm/collective.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::shm {

// The collectives on raw memory, as steps of a StepSync. Counts are in elements. Reductions have the same
// bits on every rank and in every run: values are reduced in rank order.

/// Runs whichever it is.
void run(StepSync& sync, const Heap& heap, const Collective& collective);

/// In place; the buffers of other ranks do not change.
void reduce(StepSync& sync, void* data, Elements elements, Reduction reduction, int root);
/// `inputs` has one buffer of `elements` per rank; `output` may be this rank's own buffer of them.
void reduce_scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements,
                    Reduction reduction);

void broadcast(StepSync& sync, void* data, Elements elements, int root);
/// `outputs` has one buffer per rank; `input` may be this rank's own buffer of them.
void all_gather(StepSync& sync, const void* input, Buffers outputs, Elements elements);
/// `outputs` is empty except on the root.
void gather(StepSync& sync, const void* input, Buffers outputs, Elements elements, int root);
/// `inputs` is empty except on the root.
void scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements, int root);
void barrier(StepSync& sync);

/// Sends inputs[r] to rank r and receives outputs[r] from it. Both sides of a pair must agree on the count.
void all_to_all(StepSync& sync, Parts inputs, Parts outputs, Dtype dtype);

}  // namespace lockstep::shm

#include "shm/collectives.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// The chunks of a message, in bytes, such that one chunk for each of `parts` ranks fits a staging area.
Chunks split_chunks(const StepSync& sync, Elements elements, int parts) {
  const std::size_t size = size_of(elements.dtype);
  return {elements.bytes(), elements_per_part(sync.staging_bytes(), parts, size) * size};
}

/// Every rank stages its input chunk by chunk; `use(start, length)` reads the chunks of all.
template <class Use>
void show_all(StepSync& sync, const void* input, Elements elements, const Use& use) {
  const Chunks chunks = split_chunks(sync, elements, 1);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    copy_bytes(sync.mine(), at(input, chunks.start(i)), chunks.length(i));
    sync.step();
    use(chunks.start(i), chunks.length(i));
  }
}

/// Copies every rank's input to this rank's outputs.
void collect(StepSync& sync, const void* input, Buffers outputs, Elements elements) {
  show_all(sync, input, elements, [&](std::size_t start, std::size_t length) {
    const auto sources = sync.staged(0, at(input, start));
    for (std::size_t r = 0; r < outputs.size(); ++r) copy_bytes(at(outputs[r], start), sources[r], length);
  });
}

/// Every rank publishes how much it sends to and expects from each rank, and all ranks compare all pairs.
/// Returns the largest count.
std::uint64_t exchange_counts(StepSync& sync, Parts inputs, Parts outputs) {
  auto* numbers = reinterpret_cast<std::uint64_t*>(sync.mine());
  for (const auto& part : inputs) *numbers++ = part.count;
  for (const auto& part : outputs) *numbers++ = part.count;
  sync.step();
  const auto shown_by = [&](int rank) { return reinterpret_cast<const std::uint64_t*>(sync.of(rank)); };
  std::uint64_t largest = 0;
  for (int from = 0; from < sync.size(); ++from) {
    for (int to = 0; to < sync.size(); ++to) {
      const std::uint64_t sent = shown_by(from)[to];
      const std::uint64_t expected = shown_by(to)[sync.size() + from];
      largest = std::max(largest, sent);
      if (sent == expected) continue;
      sync.fail(fmt::format("{} sends {} elements to {}, which expects {}", sync.members().called(from), sent,
                            sync.members().called(to), expected));
    }
  }
  return largest;
}

}  // namespace

void run(StepSync& sync, const Heap& heap, const Collective& collective) {
  const auto& [operation, elements, reduction, root, own, of_ranks, sent, received] = collective;
  switch (operation) {
    case Operation::all_reduce:
      return all_reduce(sync, heap, own, elements, reduction);
    case Operation::reduce:
      return reduce(sync, own, elements, reduction, root);
    case Operation::reduce_scatter:
      return reduce_scatter(sync, of_ranks, own, elements, reduction);
    case Operation::broadcast:
      return broadcast(sync, own, elements, root);
    case Operation::all_gather:
      return all_gather(sync, own, of_ranks, elements);
    case Operation::gather:
      return gather(sync, own, of_ranks, elements, root);
    case Operation::scatter:
      return scatter(sync, of_ranks, own, elements, root);
    case Operation::all_to_all:
      return all_to_all(sync, sent, received, elements.dtype);
    case Operation::barrier:
      return barrier(sync);
  }
}

void broadcast(StepSync& sync, void* data, Elements elements, int root) {
  sync.begin(call_of(Operation::broadcast, elements, Reduction::none, root));
  const Chunks chunks = split_chunks(sync, elements, 1);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    std::byte* const piece = at(data, chunks.start(i));
    if (sync.rank() == root) copy_bytes(sync.mine(), piece, chunks.length(i));
    sync.step();
    if (sync.rank() != root) copy_bytes(piece, sync.of(root), chunks.length(i));
  }
}

void reduce(StepSync& sync, void* data, Elements elements, Reduction reduction, int root) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  sync.begin(call_of(Operation::reduce, elements, reduction, root));
  show_all(sync, data, elements, [&](std::size_t start, std::size_t length) {
    if (sync.rank() != root) return;
    void* const destination = at(data, start);
    reducer(sync.staged(0).data(), sync.size(), &destination, 1, length / size_of(elements.dtype));
  });
}

void all_gather(StepSync& sync, const void* input, Buffers outputs, Elements elements) {
  sync.begin(call_of(Operation::all_gather, elements));
  collect(sync, input, outputs, elements);
}

void gather(StepSync& sync, const void* input, Buffers outputs, Elements elements, int root) {
  sync.begin(call_of(Operation::gather, elements, Reduction::none, root));
  collect(sync, input, sync.rank() == root ? outputs : Buffers(), elements);
}

void scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements, int root) {
  sync.begin(call_of(Operation::scatter, elements, Reduction::none, root));
  const Chunks chunks = split_chunks(sync, elements, sync.size());
  const auto shown = sync.rank() == root ? inputs : ConstBuffers();
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    for (std::size_t r = 0; r < shown.size(); ++r)
      copy_bytes(sync.mine() + r * chunks.each, at(shown[r], chunks.start(i)), chunks.length(i));
    sync.step();
    const std::size_t offset = static_cast<std::size_t>(sync.rank()) * chunks.each;
    copy_bytes(at(output, chunks.start(i)), sync.of(root) + offset, chunks.length(i));
  }
}

void reduce_scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements,
                    Reduction reduction) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  sync.begin(call_of(Operation::reduce_scatter, elements, reduction));
  const Chunks chunks = split_chunks(sync, elements, sync.size());
  const auto rank = static_cast<std::size_t>(sync.rank());
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t start = chunks.start(i);
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      if (r != rank) copy_bytes(sync.mine() + r * chunks.each, at(inputs[r], start), chunks.length(i));
    }
    sync.step();
    const auto sources = sync.staged(rank * chunks.each, at(inputs[rank], start));
    void* const destination = at(output, start);
    reducer(sources.data(), sync.size(), &destination, 1, chunks.length(i) / size_of(elements.dtype));
  }
}

void all_to_all(StepSync& sync, Parts inputs, Parts outputs, Dtype dtype) {
  sync.begin(call_of(Operation::all_to_all, {0, dtype}));
  const std::uint64_t largest = exchange_counts(sync, inputs, outputs);
  const std::size_t each = split_chunks(sync, {largest, dtype}, sync.size()).each;
  const auto bytes_of = [&](const Part& part) { return Chunks{part.count * size_of(dtype), each}; };
  const auto own = static_cast<std::size_t>(sync.rank()) * each;
  for (std::size_t i = 0; i < Chunks{largest * size_of(dtype), each}.count(); ++i) {
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const Chunks chunks = bytes_of(inputs[r]);
      copy_bytes(sync.mine() + r * each, at(inputs[r].data, chunks.start(i)), chunks.length(i));
    }
    sync.step();
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      const Chunks chunks = bytes_of(outputs[r]);
      copy_bytes(at(outputs[r].data, chunks.start(i)), sync.of(static_cast<int>(r)) + own, chunks.length(i));
    }
  }
}

void barrier(StepSync& sync) {
  sync.begin(call_of(Operation::barrier, {0, Dtype::bytes}));
  sync.step();
}

}  // namespace lockstep::shm

#include "shm/collectives.hpp"

#include <vector>

#include "shm/chunks.hpp"
#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// A message cut so that each of `parts` ranks finds its piece of it in one staging area.
Chunks cut(const StepSync& sync, Elements elements, int parts) {
  return {elements.count, elements_per_part(sync.staging_bytes(), parts, size_of(elements.dtype))};
}

/// Everybody stages its input chunk by chunk; `use(chunk)` reads it.
template <class Use>
void show_all(StepSync& sync, const void* input, Elements elements, const Use& use) {
  const Chunks chunks = cut(sync, elements, 1);
  const std::size_t size = size_of(elements.dtype);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    copy_bytes(sync.mine(), at(input, chunks.start(i) * size), chunks.length(i) * size);
    sync.step();
    use(chunks.start(i), chunks.length(i));
  }
}

/// Everybody's input, to this rank's outputs.
void collect(StepSync& sync, const void* input, Buffers outputs, Elements elements) {
  const std::size_t size = size_of(elements.dtype);
  const int rank = sync.rank();
  show_all(sync, input, elements, [&](std::size_t start, std::size_t length) {
    for (int r = 0; r < static_cast<int>(outputs.size()); ++r) {
      const void* from = r == rank ? at(input, start * size) : sync.of(r);
      copy_bytes(at(outputs[static_cast<std::size_t>(r)], start * size), from, length * size);
    }
  });
}

}  // namespace

void broadcast(StepSync& sync, void* data, Elements elements, int root) {
  sync.begin(
      {.count = elements.count, .root = root, .operation = Operation::broadcast, .dtype = elements.dtype});
  const Chunks chunks = cut(sync, elements, 1);
  const std::size_t size = size_of(elements.dtype);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    std::byte* const piece = at(data, chunks.start(i) * size);
    if (sync.rank() == root) copy_bytes(sync.mine(), piece, chunks.length(i) * size);
    sync.step();
    if (sync.rank() != root) copy_bytes(piece, sync.of(root), chunks.length(i) * size);
  }
}

void reduce(StepSync& sync, void* data, Elements elements, Reduction reduction, int root) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  sync.begin({.count = elements.count,
              .root = root,
              .operation = Operation::reduce,
              .dtype = elements.dtype,
              .reduction = reduction});
  std::vector<const void*> sources(static_cast<std::size_t>(sync.size()));
  show_all(sync, data, elements, [&](std::size_t start, std::size_t length) {
    if (sync.rank() != root) return;
    for (int r = 0; r < sync.size(); ++r) sources[static_cast<std::size_t>(r)] = sync.of(r);
    void* const destination = at(data, start * size_of(elements.dtype));
    reducer(sources.data(), sync.size(), &destination, 1, length);
  });
}

void all_gather(StepSync& sync, const void* input, Buffers outputs, Elements elements) {
  sync.begin({.count = elements.count, .operation = Operation::all_gather, .dtype = elements.dtype});
  collect(sync, input, outputs, elements);
}

void gather(StepSync& sync, const void* input, Buffers outputs, Elements elements, int root) {
  sync.begin(
      {.count = elements.count, .root = root, .operation = Operation::gather, .dtype = elements.dtype});
  collect(sync, input, sync.rank() == root ? outputs : Buffers(), elements);
}

void scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements, int root) {
  sync.begin(
      {.count = elements.count, .root = root, .operation = Operation::scatter, .dtype = elements.dtype});
  const Chunks chunks = cut(sync, elements, sync.size());
  const std::size_t size = size_of(elements.dtype);
  const bool is_root = sync.rank() == root;
  const auto place = [&](int r) { return static_cast<std::size_t>(r) * chunks.each * size; };
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t start = chunks.start(i) * size;
    const std::size_t length = chunks.length(i) * size;
    for (int r = 0; is_root && r < sync.size(); ++r) {
      copy_bytes(sync.mine() + place(r), at(inputs[static_cast<std::size_t>(r)], start), length);
    }
    sync.step();
    copy_bytes(at(output, start), sync.of(root) + place(sync.rank()), length);
  }
}

void reduce_scatter(StepSync& sync, ConstBuffers inputs, void* output, Elements elements,
                    Reduction reduction) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  sync.begin({.count = elements.count,
              .operation = Operation::reduce_scatter,
              .dtype = elements.dtype,
              .reduction = reduction});
  const Chunks chunks = cut(sync, elements, sync.size());
  const std::size_t size = size_of(elements.dtype);
  const int rank = sync.rank();
  const auto place = [&](int r) { return static_cast<std::size_t>(r) * chunks.each * size; };
  std::vector<const void*> sources(inputs.size());
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t start = chunks.start(i) * size;
    for (int r = 0; r < sync.size(); ++r) {
      if (r == rank) continue;
      copy_bytes(sync.mine() + place(r), at(inputs[static_cast<std::size_t>(r)], start),
                 chunks.length(i) * size);
    }
    sync.step();
    for (int r = 0; r < sync.size(); ++r) {
      const void* own = at(inputs[static_cast<std::size_t>(rank)], start);
      sources[static_cast<std::size_t>(r)] = r == rank ? own : sync.of(r) + place(rank);
    }
    void* const destination = at(output, start);
    reducer(sources.data(), sync.size(), &destination, 1, chunks.length(i));
  }
}

void barrier(StepSync& sync) {
  sync.begin({.operation = Operation::barrier});
  sync.step();
}

}  // namespace lockstep::shm

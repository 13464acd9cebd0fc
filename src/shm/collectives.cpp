#include "shm/collectives.hpp"

#include <vector>

#include "shm/chunks.hpp"
#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

std::byte* at(void* data, std::size_t byte) { return static_cast<std::byte*>(data) + byte; }
const std::byte* at(const void* data, std::size_t byte) { return static_cast<const std::byte*>(data) + byte; }

/// A message cut so that each of `parts` ranks finds its piece of it in one staging area.
Chunks cut(const Exchange& exchange, Elements elements, int parts) {
  return {elements.count, elements_per_part(exchange.staging_bytes(), parts, size_of(elements.dtype))};
}

/// Everybody stages its input chunk by chunk; `use(chunk)` reads it.
template <class Use>
void show_all(Exchange& exchange, const void* input, Elements elements, const Use& use) {
  const Chunks chunks = cut(exchange, elements, 1);
  const std::size_t size = size_of(elements.dtype);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    copy_bytes(exchange.mine(), at(input, chunks.start(i) * size), chunks.length(i) * size);
    exchange.step();
    use(chunks.start(i), chunks.length(i));
  }
}

/// Everybody's input, to this rank's outputs.
void collect(Exchange& exchange, const void* input, Buffers outputs, Elements elements) {
  const std::size_t size = size_of(elements.dtype);
  const int rank = exchange.rank();
  show_all(exchange, input, elements, [&](std::size_t start, std::size_t length) {
    for (int r = 0; r < static_cast<int>(outputs.size()); ++r) {
      const void* from = r == rank ? at(input, start * size) : exchange.of(r);
      copy_bytes(at(outputs[static_cast<std::size_t>(r)], start * size), from, length * size);
    }
  });
}

}  // namespace

void broadcast(Exchange& exchange, void* data, Elements elements, int root) {
  exchange.begin(
      {.count = elements.count, .root = root, .operation = Operation::broadcast, .dtype = elements.dtype});
  const Chunks chunks = cut(exchange, elements, 1);
  const std::size_t size = size_of(elements.dtype);
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    std::byte* const piece = at(data, chunks.start(i) * size);
    if (exchange.rank() == root) copy_bytes(exchange.mine(), piece, chunks.length(i) * size);
    exchange.step();
    if (exchange.rank() != root) copy_bytes(piece, exchange.of(root), chunks.length(i) * size);
  }
}

void reduce(Exchange& exchange, void* data, Elements elements, Reduction reduction, int root) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  exchange.begin({.count = elements.count,
                  .root = root,
                  .operation = Operation::reduce,
                  .dtype = elements.dtype,
                  .reduction = reduction});
  std::vector<const void*> sources(static_cast<std::size_t>(exchange.size()));
  show_all(exchange, data, elements, [&](std::size_t start, std::size_t length) {
    if (exchange.rank() != root) return;
    for (int r = 0; r < exchange.size(); ++r) sources[static_cast<std::size_t>(r)] = exchange.of(r);
    void* const destination = at(data, start * size_of(elements.dtype));
    reducer(sources.data(), exchange.size(), &destination, 1, length);
  });
}

void all_gather(Exchange& exchange, const void* input, Buffers outputs, Elements elements) {
  exchange.begin({.count = elements.count, .operation = Operation::all_gather, .dtype = elements.dtype});
  collect(exchange, input, outputs, elements);
}

void gather(Exchange& exchange, const void* input, Buffers outputs, Elements elements, int root) {
  exchange.begin(
      {.count = elements.count, .root = root, .operation = Operation::gather, .dtype = elements.dtype});
  collect(exchange, input, exchange.rank() == root ? outputs : Buffers(), elements);
}

void scatter(Exchange& exchange, ConstBuffers inputs, void* output, Elements elements, int root) {
  exchange.begin(
      {.count = elements.count, .root = root, .operation = Operation::scatter, .dtype = elements.dtype});
  const Chunks chunks = cut(exchange, elements, exchange.size());
  const std::size_t size = size_of(elements.dtype);
  const bool is_root = exchange.rank() == root;
  const auto place = [&](int r) { return static_cast<std::size_t>(r) * chunks.each * size; };
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t start = chunks.start(i) * size;
    const std::size_t length = chunks.length(i) * size;
    for (int r = 0; is_root && r < exchange.size(); ++r) {
      copy_bytes(exchange.mine() + place(r), at(inputs[static_cast<std::size_t>(r)], start), length);
    }
    exchange.step();
    copy_bytes(at(output, start), exchange.of(root) + place(exchange.rank()), length);
  }
}

void reduce_scatter(Exchange& exchange, ConstBuffers inputs, void* output, Elements elements,
                    Reduction reduction) {
  const Reducer reducer = reducer_for(elements.dtype, reduction);
  exchange.begin({.count = elements.count,
                  .operation = Operation::reduce_scatter,
                  .dtype = elements.dtype,
                  .reduction = reduction});
  const Chunks chunks = cut(exchange, elements, exchange.size());
  const std::size_t size = size_of(elements.dtype);
  const int rank = exchange.rank();
  const auto place = [&](int r) { return static_cast<std::size_t>(r) * chunks.each * size; };
  std::vector<const void*> sources(inputs.size());
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t start = chunks.start(i) * size;
    for (int r = 0; r < exchange.size(); ++r) {
      if (r == rank) continue;
      copy_bytes(exchange.mine() + place(r), at(inputs[static_cast<std::size_t>(r)], start),
                 chunks.length(i) * size);
    }
    exchange.step();
    for (int r = 0; r < exchange.size(); ++r) {
      const void* own = at(inputs[static_cast<std::size_t>(rank)], start);
      sources[static_cast<std::size_t>(r)] = r == rank ? own : exchange.of(r) + place(rank);
    }
    void* const destination = at(output, start);
    reducer(sources.data(), exchange.size(), &destination, 1, chunks.length(i));
  }
}

void barrier(Exchange& exchange) {
  exchange.begin({.operation = Operation::barrier});
  exchange.step();
}

}  // namespace lockstep::shm

#include "shm/hierarchy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/chunks.hpp"
#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// Smaller messages go by one lane: a network takes as long for a part of them as for the whole.
constexpr std::size_t kOneLane = 64U << 10;

}  // namespace

Hierarchy::Hierarchy(Parts parts) : parts_(std::move(parts)), buffers_(parts_.hosts.mine().size()) {
  std::size_t ranks = 0;
  for (const auto& part : parts_.hosts.ranks) ranks += part.size();
  for (std::size_t r = 0; r < ranks; ++r) places_.push_back(parts_.hosts.host_rank_of(static_cast<int>(r)));
}

Hierarchy::~Hierarchy() {
  if (workspace_ != nullptr) parts_.group->heap()->free(workspace_);
}

/// A rank that fails tells the ranks of its host and the other hosts.
template <class Body>
void Hierarchy::guarded(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    step_sync().give_up(std::current_exception(), error.what());
    if (parts_.lane) parts_.lane->abandon(error.what());
    throw;
  }
}

template <class Body>
void Hierarchy::in_pieces(Elements elements, std::size_t copies, const Body& body) {
  const std::size_t most = parts_.piece_bytes / copies / size_of(elements.dtype);
  const Chunks chunks{elements.count, std::max<std::size_t>(1, most)};
  for (std::size_t i = 0; i < chunks.count(); ++i) body(chunks.start(i), chunks.length(i), i == 0);
}

/// Called when this rank has filled its buffer: exchanges where the buffers of this host's ranks are.
/// `lanes`: how many transfer the first piece.
void Hierarchy::begin_piece(const Call& call, bool first, int lanes, const std::byte* working) {
  const std::int64_t offset = working == nullptr ? -1 : parts_.group->heap()->offset_of(working, 0);
  if (first) {
    step_sync().begin(call, offset);
    announced_ = carries(lanes);
    if (announced_) parts_.lane->announce(step_sync().own_call());
  } else {
    step_sync().begin_part(offset);
  }
  step_sync().step();
  for (std::size_t m = 0; m < buffers_.size(); ++m) {
    const auto place = step_sync().heap_offset_of(static_cast<int>(m));
    buffers_[m] = place < 0 ? nullptr : step_sync().peers()[m].segment->base() + place;
  }
}

void Hierarchy::agree_between_hosts() {
  if (std::exchange(announced_, false)) parts_.lane->agree();
}

int Hierarchy::lanes_for(std::size_t bytes) const { return bytes <= kOneLane ? 1 : parts_.lanes; }

Hierarchy::Slice Hierarchy::slice(int lane, int lanes, Elements piece) {
  const auto ways = static_cast<std::size_t>(lanes);
  const std::size_t per_line = std::max<std::size_t>(1, kLine / size_of(piece.dtype));
  const std::size_t each = ((piece.count + ways - 1) / ways + per_line - 1) / per_line * per_line;
  const std::size_t start = std::min(piece.count, each * static_cast<std::size_t>(lane));
  return {start, std::min(each, piece.count - start)};
}

template <class Across>
void Hierarchy::carry(Elements piece, const Across& across) {
  const int lanes = lanes_for(piece.bytes());
  if (!carries(lanes)) return;
  agree_between_hosts();
  const Slice own = slice(step_sync().rank(), lanes, piece);
  if (own.length > 0) across(own);
}

void Hierarchy::combine(Slice own, Elements piece, Reduction reduction) {
  if (buffers_.size() == 1) return;
  if (reduction == Reduction::avg) reduction = Reduction::sum;  // The lane divides.
  const std::size_t start = own.start * size_of(piece.dtype);
  std::vector<const void*> sources;
  for (std::byte* buffer : buffers_) sources.push_back(buffer + start);
  void* const destination = buffers_[member()] + start;
  reducer_for(piece.dtype, reduction)(sources.data(), static_cast<int>(sources.size()), &destination, 1,
                                      own.length);
}

/// Copies the result out of the buffers of the ranks that own the lanes.
void Hierarchy::fetch(void* to, Elements piece, Slice wanted) {
  const int lanes = lanes_for(piece.bytes());
  const std::size_t size = size_of(piece.dtype);
  for (int lane = 0; lane < lanes; ++lane) {
    const Slice there = slice(lane, lanes, piece);
    const std::size_t first = std::max(there.start, wanted.start);
    const std::size_t end = std::min(there.start + there.length, wanted.start + wanted.length);
    if (first >= end) continue;
    copy_bytes(at(to, (first - wanted.start) * size), buffers_[static_cast<std::size_t>(lane)] + first * size,
               (end - first) * size);
  }
}

std::byte* Hierarchy::workspace(std::size_t bytes) {
  if (workspace_ != nullptr && bytes <= workspace_bytes_) return workspace_;
  Heap& heap = *parts_.group->heap();
  if (workspace_ != nullptr) heap.free(workspace_);
  workspace_bytes_ = std::bit_ceil(std::max(bytes, kOneLane));
  workspace_ = static_cast<std::byte*>(heap.allocate(workspace_bytes_));
  if (workspace_ != nullptr) return workspace_;
  throw CommunicationError(fmt::format("no shared memory is left for {} bytes to work in", workspace_bytes_));
}

std::byte* Hierarchy::visible(std::byte* data, std::size_t bytes) {
  return parts_.group->heap()->offset_of(data, bytes) >= 0 ? data : workspace(bytes);
}

void Hierarchy::all_reduce(void* data, Elements elements, Reduction reduction) {
  static_cast<void>(reducer_for(elements.dtype, reduction));
  const Call call{.count = elements.count,
                  .operation = Operation::all_reduce,
                  .dtype = elements.dtype,
                  .reduction = reduction};
  const std::size_t size = size_of(elements.dtype);
  guarded([&] {
    in_pieces(elements, 1, [&](std::size_t start, std::size_t length, bool first) {
      const Elements piece{length, elements.dtype};
      std::byte* const place = at(data, start * size);
      std::byte* const working = visible(place, piece.bytes());
      copy_bytes(working, place, piece.bytes());
      begin_piece(call, first, lanes_for(piece.bytes()), working);
      carry(piece, [&](Slice own) {
        combine(own, piece, reduction);
        parts_.lane->all_reduce(working + own.start * size, {own.length, piece.dtype}, reduction);
      });
      step_sync().step();
      fetch(place, piece, {0, length});
      step_sync().step();
    });
  });
}

/// In the workspace, because only the root's data may change.
void Hierarchy::reduce(void* data, Elements elements, Reduction reduction, int root) {
  static_cast<void>(reducer_for(elements.dtype, reduction));
  const Call call{.count = elements.count,
                  .root = root,
                  .operation = Operation::reduce,
                  .dtype = elements.dtype,
                  .reduction = reduction};
  const std::size_t size = size_of(elements.dtype);
  const int root_host = places_.at(static_cast<std::size_t>(root)).host;
  guarded([&] {
    in_pieces(elements, 1, [&](std::size_t start, std::size_t length, bool first) {
      const Elements piece{length, elements.dtype};
      std::byte* const working = workspace(piece.bytes());
      copy_bytes(working, at(data, start * size), piece.bytes());
      begin_piece(call, first, lanes_for(piece.bytes()), working);
      carry(piece, [&](Slice own) {
        combine(own, piece, reduction);
        parts_.lane->reduce(working + own.start * size, {own.length, piece.dtype}, reduction, root_host);
      });
      step_sync().step();
      if (parts_.rank == root) fetch(at(data, start * size), piece, {0, length});
      step_sync().step();
    });
  });
}

/// An all_reduce of everything, of which each rank fetches its part: between the hosts Gloo does it so too.
void Hierarchy::reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) {
  static_cast<void>(reducer_for(elements.dtype, reduction));
  const Call call{.count = elements.count,
                  .operation = Operation::reduce_scatter,
                  .dtype = elements.dtype,
                  .reduction = reduction};
  const std::size_t size = size_of(elements.dtype);
  guarded([&] {
    in_pieces(elements, inputs.size(), [&](std::size_t start, std::size_t length, bool first) {
      const Elements piece{length * inputs.size(), elements.dtype};
      std::byte* const working = workspace(piece.bytes());
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        copy_bytes(working + r * length * size, at(inputs[r], start * size), length * size);
      }
      begin_piece(call, first, lanes_for(piece.bytes()), working);
      carry(piece, [&](Slice own) {
        combine(own, piece, reduction);
        parts_.lane->all_reduce(working + own.start * size, {own.length, piece.dtype}, reduction);
      });
      step_sync().step();
      fetch(at(output, start * size), piece, {static_cast<std::size_t>(parts_.rank) * length, length});
      step_sync().step();
    });
  });
}

void Hierarchy::broadcast(void* data, Elements elements, int root) {
  const Call call{
      .count = elements.count, .root = root, .operation = Operation::broadcast, .dtype = elements.dtype};
  const std::size_t size = size_of(elements.dtype);
  const HostTopology::HostRank source = places_.at(static_cast<std::size_t>(root));
  const bool here = source.host == parts_.hosts.own;
  guarded([&] {
    in_pieces(elements, 1, [&](std::size_t start, std::size_t length, bool first) {
      const Elements piece{length, elements.dtype};
      std::byte* const place = at(data, start * size);
      std::byte* const working = visible(place, piece.bytes());
      if (parts_.rank == root) copy_bytes(working, place, piece.bytes());
      begin_piece(call, first, lanes_for(piece.bytes()), working);
      std::byte* const from = here ? buffers_[static_cast<std::size_t>(source.member)] : working;
      carry(piece, [&](Slice own) {
        parts_.lane->broadcast(from + own.start * size, own.length * size, source.host);
      });
      step_sync().step();
      if (!here) fetch(place, piece, {0, length});
      if (here && parts_.rank != root) copy_bytes(place, from, piece.bytes());
      step_sync().step();
    });
  });
}

std::size_t Hierarchy::rounds() const {
  std::size_t most = 0;
  for (const auto& part : parts_.hosts.ranks) most = std::max(most, part.size());
  const auto lanes = static_cast<std::size_t>(parts_.lanes);
  return (most + lanes - 1) / lanes;
}

/// Behind its own piece, `bytes` long, a lane's rank finds in each round those of one member of every host. A
/// host that has no such member gives something, which nobody looks at.
void Hierarchy::carry_pieces(std::byte* working, std::size_t bytes) {
  if (!carries(parts_.lanes) || bytes == 0) return;
  for (std::size_t round = 0; round < rounds(); ++round) {
    const std::size_t carried = round * static_cast<std::size_t>(parts_.lanes) + member();
    const std::byte* from = carried < buffers_.size() ? buffers_[carried] : working;
    parts_.lane->all_gather(from, working + bytes * (1 + round * hosts()), bytes);
  }
}

void Hierarchy::collect(Buffers outputs, std::size_t start, std::size_t bytes) {
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    const auto [host, member] = places_[rank];
    const auto lane = static_cast<std::size_t>(member % parts_.lanes);
    const auto round = static_cast<std::size_t>(member / parts_.lanes);
    const std::byte* from =
        host == parts_.hosts.own
            ? buffers_[static_cast<std::size_t>(member)]
            : buffers_[lane] + bytes * (1 + round * hosts() + static_cast<std::size_t>(host));
    copy_bytes(at(outputs[rank], start), from, bytes);
  }
}

void Hierarchy::all_gather(const void* input, Buffers outputs, Elements elements) {
  const Call call{.count = elements.count, .operation = Operation::all_gather, .dtype = elements.dtype};
  const std::size_t size = size_of(elements.dtype);
  const std::size_t copies = 1 + rounds() * hosts();
  guarded([&] {
    in_pieces(elements, copies, [&](std::size_t start, std::size_t length, bool first) {
      const std::size_t bytes = length * size;
      std::byte* const working = workspace(bytes * copies);
      copy_bytes(working, at(input, start * size), bytes);
      begin_piece(call, first, parts_.lanes, working);
      agree_between_hosts();
      carry_pieces(working, bytes);
      step_sync().step();
      collect(outputs, start * size, bytes);
      step_sync().step();
    });
  });
}

void Hierarchy::barrier() {
  guarded([&] {
    begin_piece({.operation = Operation::barrier}, true, 1, nullptr);
    agree_between_hosts();
    std::int32_t token = 0;
    if (carries(1)) parts_.lane->all_reduce(&token, {1, Dtype::i32}, Reduction::sum);
    step_sync().step();
  });
}

/// By all lanes, each of which may have to tell of a failure.
void Hierarchy::elsewhere(const Call& call, const std::function<void()>& body) {
  guarded([&] {
    begin_piece(call, true, parts_.lanes, nullptr);
    agree_between_hosts();
    step_sync().step();
    if (parts_.lane) return parts_.lane->beside(body);
    body();
  });
}

}  // namespace lockstep::shm

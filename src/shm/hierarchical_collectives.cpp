#include "shm/hierarchical_collectives.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// Smaller messages use one leader: a part of them takes as long as the whole.
constexpr std::size_t kOneLeader = 64U << 10;

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(Parts parts)
    : parts_(std::move(parts)), buffers_(parts_.hosts.mine().size()) {
  std::size_t ranks = 0;
  for (const auto& part : parts_.hosts.ranks) ranks += part.size();
  for (std::size_t r = 0; r < ranks; ++r)
    host_ranks_.push_back(parts_.hosts.host_rank_of(static_cast<int>(r)));
}

HierarchicalCollectives::~HierarchicalCollectives() {
  if (workspace_ != nullptr) parts_.group->heap()->free(workspace_);
}

/// Reports a failure to the ranks of this host and to the other hosts.
template <class Body>
void HierarchicalCollectives::guarded(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    step_sync().give_up(std::current_exception(), error.what());
    if (parts_.transport) parts_.transport->abandon(error.what());
    throw;
  }
}

/// `leaders`: number of leaders that transfer the first piece.
void HierarchicalCollectives::begin(const Call& call, int leaders) {
  step_sync().begin(call);
  announced_ = leads(leaders);
  if (announced_) parts_.transport->announce(step_sync().own_call());
}

void HierarchicalCollectives::exchange_buffers() {
  step_sync().step();
  for (std::size_t m = 0; m < buffers_.size(); ++m)
    buffers_[m] = step_sync().heap_buffer_of(static_cast<int>(m));
}

void HierarchicalCollectives::agree_between_hosts() {
  if (std::exchange(announced_, false)) parts_.transport->agree();
}

/// For each piece: `fill` returns this rank's filled buffer; the leaders `transfer` their slices between the
/// hosts; every rank calls `take`. An all_gather is split by ranks, not into slices.
template <class Fill, class Transfer, class Take>
void HierarchicalCollectives::in_pieces(const Call& call, std::size_t copies, const Fill& fill,
                                        const Transfer& transfer, const Take& take) {
  // Throws for an invalid combination before any rank is contacted.
  if (call.reduction != Reduction::none) static_cast<void>(reducer_for(call.dtype, call.reduction));
  const std::size_t size = size_of(call.dtype);
  const Chunks chunks{call.count, std::max<std::size_t>(1, parts_.piece_bytes / copies / size)};
  guarded([&] {
    for (std::size_t i = 0; i < chunks.count(); ++i) {
      const std::size_t length = chunks.length(i);
      Piece piece{
          chunks.start(i) * size, {length, call.dtype}, {length * copies, call.dtype}, 1, nullptr, {}};
      const bool many = call.operation == Operation::all_gather || piece.all_copies.bytes() > kOneLeader;
      if (many) piece.leaders = parts_.leaders;
      piece.own = slice_of(piece.all_copies.count, piece.leaders, step_sync().rank(), size);
      piece.working = fill(piece);
      const std::int64_t offset = parts_.group->heap()->offset_of(piece.working, 0);
      if (i == 0) begin(call, piece.leaders);
      step_sync().show_buffer(offset);
      exchange_buffers();
      if (leads(piece.leaders)) {
        agree_between_hosts();
        transfer(piece);
      }
      step_sync().step();
      take(piece);
      step_sync().step();
    }
  });
}

/// The slice that this rank transfers, reduced over its host; null if it is empty.
void* HierarchicalCollectives::combined(const Piece& piece, Reduction reduction) {
  if (piece.own.length == 0) return nullptr;
  const std::size_t start = piece.own.start * size_of(piece.elements.dtype);
  void* const slice = piece.working + start;
  if (buffers_.size() == 1) return slice;
  if (reduction == Reduction::avg) reduction = Reduction::sum;  // The transport divides.
  std::vector<const void*> sources;
  for (std::byte* buffer : buffers_) sources.push_back(buffer + start);
  reducer_for(piece.elements.dtype, reduction)(sources.data(), static_cast<int>(sources.size()), &slice, 1,
                                               piece.own.length);
  return slice;
}

void HierarchicalCollectives::all_reduce_slice(const Piece& piece, Reduction reduction) {
  if (void* const slice = combined(piece, reduction))
    parts_.transport->run({.operation = Operation::all_reduce,
                           .elements = {piece.own.length, piece.elements.dtype},
                           .reduction = reduction,
                           .own = slice});
}

/// Copies the result from the buffers of the leaders.
void HierarchicalCollectives::fetch(void* to, const Piece& piece, Range wanted) {
  const std::size_t size = size_of(piece.elements.dtype);
  for (int leader = 0; leader < piece.leaders; ++leader) {
    const Range there = slice_of(piece.all_copies.count, piece.leaders, leader, size);
    const std::size_t first = std::max(there.start, wanted.start);
    const std::size_t end = std::min(there.start + there.length, wanted.start + wanted.length);
    if (first >= end) continue;
    copy_bytes(at(to, (first - wanted.start) * size),
               buffers_[static_cast<std::size_t>(leader)] + first * size, (end - first) * size);
  }
}

std::byte* HierarchicalCollectives::workspace(std::size_t bytes) {
  if (workspace_ != nullptr && bytes <= workspace_bytes_) return workspace_;
  Heap& heap = *parts_.group->heap();
  if (workspace_ != nullptr) heap.free(workspace_);
  workspace_bytes_ = std::bit_ceil(std::max(bytes, kOneLeader));
  workspace_ = static_cast<std::byte*>(heap.allocate(workspace_bytes_));
  if (workspace_ != nullptr) return workspace_;
  throw CommunicationError(fmt::format("no shared memory is left for {} bytes to work in", workspace_bytes_));
}

std::byte* HierarchicalCollectives::visible(std::byte* data, std::size_t bytes) {
  return parts_.group->heap()->offset_of(data, bytes) >= 0 ? data : workspace(bytes);
}

void HierarchicalCollectives::run(const Collective& collective) {
  switch (collective.operation) {
    case Operation::all_reduce:
      return all_reduce(collective);
    case Operation::reduce:
      return reduce(collective);
    case Operation::reduce_scatter:
      return reduce_scatter(collective);
    case Operation::broadcast:
      return broadcast(collective);
    case Operation::all_gather:
      return all_gather(collective);
    case Operation::barrier:
      return barrier(collective);
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all:
      break;
  }
  throw Error(
      fmt::format("{} has separate data for each rank: it runs elsewhere()", name_of(collective.operation)));
}

void HierarchicalCollectives::all_reduce(const Collective& collective) {
  void* const data = collective.own;
  in_pieces(
      call_of(collective), 1,
      [&](const Piece& piece) {
        std::byte* const own = at(data, piece.start);
        std::byte* const working = visible(own, piece.elements.bytes());
        copy_bytes(working, own, piece.elements.bytes());
        return working;
      },
      [&](const Piece& piece) { all_reduce_slice(piece, collective.reduction); },
      [&](const Piece& piece) {
        fetch(at(data, piece.start), piece, {0, piece.elements.count});
      });
}

/// Uses the workspace, because only the root's data may change.
void HierarchicalCollectives::reduce(const Collective& collective) {
  void* const data = collective.own;
  const int root_host = host_ranks_.at(static_cast<std::size_t>(collective.root)).host;
  in_pieces(
      call_of(collective), 1,
      [&](const Piece& piece) {
        std::byte* const working = workspace(piece.elements.bytes());
        copy_bytes(working, at(data, piece.start), piece.elements.bytes());
        return working;
      },
      [&](const Piece& piece) {
        if (void* const slice = combined(piece, collective.reduction))
          parts_.transport->run({.operation = Operation::reduce,
                                 .elements = {piece.own.length, collective.elements.dtype},
                                 .reduction = collective.reduction,
                                 .root = root_host,
                                 .own = slice});
      },
      [&](const Piece& piece) {
        if (parts_.rank == collective.root) fetch(at(data, piece.start), piece, {0, piece.elements.count});
      });
}

/// An all_reduce of all data, of which each rank copies its part, as in Gloo.
void HierarchicalCollectives::reduce_scatter(const Collective& collective) {
  const Buffers inputs = collective.of_ranks;
  in_pieces(
      call_of(collective), inputs.size(),
      [&](const Piece& piece) {
        const std::size_t bytes = piece.elements.bytes();
        std::byte* const working = workspace(piece.all_copies.bytes());
        for (std::size_t r = 0; r < inputs.size(); ++r)
          copy_bytes(working + r * bytes, at(inputs[r], piece.start), bytes);
        return working;
      },
      [&](const Piece& piece) { all_reduce_slice(piece, collective.reduction); },
      [&](const Piece& piece) {
        const std::size_t length = piece.elements.count;
        fetch(at(collective.own, piece.start), piece,
              {static_cast<std::size_t>(parts_.rank) * length, length});
      });
}

void HierarchicalCollectives::broadcast(const Collective& collective) {
  void* const data = collective.own;
  const int root = collective.root;
  const HostTopology::HostRank source = host_ranks_.at(static_cast<std::size_t>(root));
  const bool here = source.host == parts_.hosts.own;
  const auto source_of = [&](const Piece& piece) {
    return here ? buffers_[static_cast<std::size_t>(source.member)] : piece.working;
  };
  in_pieces(
      call_of(collective), 1,
      [&](const Piece& piece) {
        std::byte* const own = at(data, piece.start);
        std::byte* const working = visible(own, piece.elements.bytes());
        if (parts_.rank == root) copy_bytes(working, own, piece.elements.bytes());
        return working;
      },
      [&](const Piece& piece) {
        const std::size_t size = size_of(collective.elements.dtype);
        std::byte* const from = source_of(piece) + piece.own.start * size;
        if (piece.own.length > 0)
          parts_.transport->run({.operation = Operation::broadcast,
                                 .elements = {piece.own.length * size, Dtype::bytes},
                                 .root = source.host,
                                 .own = from});
      },
      [&](const Piece& piece) {
        void* const own = at(data, piece.start);
        if (!here) return fetch(own, piece, {0, piece.elements.count});
        if (parts_.rank != root) copy_bytes(own, source_of(piece), piece.elements.bytes());
      });
}

std::size_t HierarchicalCollectives::rounds() const {
  std::size_t most = 0;
  for (const auto& part : parts_.hosts.ranks) most = std::max(most, part.size());
  const auto leaders = static_cast<std::size_t>(parts_.leaders);
  return (most + leaders - 1) / leaders;
}

/// After its own piece, a leader's buffer receives in each round the pieces of one member of every host. A
/// host without such a member sends arbitrary data, which is not read.
void HierarchicalCollectives::gather_between_hosts(const Piece& piece) {
  const std::size_t bytes = piece.elements.bytes();
  if (bytes == 0) return;
  std::vector<void*> outputs(hosts());
  for (std::size_t round = 0; round < rounds(); ++round) {
    const auto member =
        round * static_cast<std::size_t>(parts_.leaders) + static_cast<std::size_t>(step_sync().rank());
    std::byte* const from = member < buffers_.size() ? buffers_[member] : piece.working;
    for (std::size_t host = 0; host < hosts(); ++host)
      outputs[host] = piece.working + bytes * (1 + round * hosts() + host);
    parts_.transport->run({.operation = Operation::all_gather,
                           .elements = {bytes, Dtype::bytes},
                           .own = from,
                           .of_ranks = outputs});
  }
}

void HierarchicalCollectives::collect(Buffers outputs, const Piece& piece) {
  const std::size_t bytes = piece.elements.bytes();
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    const auto [host, member] = host_ranks_[rank];
    const auto leader = static_cast<std::size_t>(member % parts_.leaders);
    const auto round = static_cast<std::size_t>(member / parts_.leaders);
    const std::byte* from =
        host == parts_.hosts.own
            ? buffers_[static_cast<std::size_t>(member)]
            : buffers_[leader] + bytes * (1 + round * hosts() + static_cast<std::size_t>(host));
    copy_bytes(at(outputs[rank], piece.start), from, bytes);
  }
}

void HierarchicalCollectives::all_gather(const Collective& collective) {
  in_pieces(
      call_of(collective), 1 + rounds() * hosts(),
      [&](const Piece& piece) {
        std::byte* const working = workspace(piece.all_copies.bytes());
        copy_bytes(working, at(collective.own, piece.start), piece.elements.bytes());
        return working;
      },
      [&](const Piece& piece) { gather_between_hosts(piece); },
      [&](const Piece& piece) { collect(collective.of_ranks, piece); });
}

void HierarchicalCollectives::barrier(const Collective& collective) {
  guarded([&] {
    begin(call_of(collective), 1);
    exchange_buffers();
    agree_between_hosts();
    std::int32_t token = 0;
    if (leads(1))
      parts_.transport->run({.operation = Operation::all_reduce,
                             .elements = {1, Dtype::i32},
                             .reduction = Reduction::sum,
                             .own = &token});
    step_sync().step();
  });
}

/// With all leaders, because each of them may have to report a failure.
void HierarchicalCollectives::elsewhere(const Collective& collective, const std::function<void()>& body) {
  guarded([&] {
    begin(call_of(collective), parts_.leaders);
    exchange_buffers();
    agree_between_hosts();
    step_sync().step();
    if (parts_.transport) return parts_.transport->beside(body);
    body();
  });
}

}  // namespace lockstep::shm

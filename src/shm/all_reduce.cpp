#include <vector>

#include "shm/chunks.hpp"
#include "shm/collectives.hpp"
#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// Up to this size every rank reduces everything: one step, where the others take two. Where ranks share
/// CPUs a step is dear.
constexpr std::size_t kSmall = 4U << 10;
constexpr std::size_t kSmallWhereRanksShareCpus = 16U << 10;

/// One all_reduce. The members of the group share the work: a chunk is cut into one slice for each rank, and
/// each rank reduces its own.
class AllReduce {
 public:
  AllReduce(StepSync& sync, void* data, Elements elements, Reduction reduction)
      : sync_(sync),
        data_(static_cast<std::byte*>(data)),
        element_bytes_(size_of(elements.dtype)),
        count_(elements.count),
        reducer_(reducer_for(elements.dtype, reduction)),
        sources_(static_cast<std::size_t>(sync.size())),
        slice_(elements_per_part(sync.staging_bytes(), sync.size(), element_bytes_)),
        chunks_{count_, slice_ * sources_.size()} {}

  bool is_small() const {
    const std::size_t limit = sync_.has_cpu_per_rank() ? kSmall : kSmallWhereRanksShareCpus;
    return count_ * element_bytes_ <= std::min(limit, sync_.staging_bytes());
  }

  void at_once();
  /// In which the ranks learn where the buffers of the others lie. Stages a first chunk where this rank's
  /// must be staged anyway.
  void first_step(bool staged);
  void in_chunks_after_the_first_step();
  void in_place();

 private:
  struct Range {
    std::size_t start;
    std::size_t length;
  };

  /// The elements of a chunk that a rank reduces. Small chunks are spread over all ranks as well.
  Range slice(std::size_t chunk, int rank) const;
  std::byte* at(std::size_t element) const { return data_ + element * element_bytes_; }
  std::size_t place(int rank) const { return static_cast<std::size_t>(rank) * slice_ * element_bytes_; }
  void stage(std::size_t chunk);
  void reduce(std::size_t chunk);
  void collect(std::size_t chunk);
  void pipeline_step(std::size_t i);

  StepSync& sync_;
  std::byte* data_;
  std::size_t element_bytes_;
  std::size_t count_;
  Reducer reducer_;
  std::vector<const void*> sources_;
  std::size_t slice_;
  Chunks chunks_;
};

AllReduce::Range AllReduce::slice(std::size_t chunk, int rank) const {
  const std::size_t start = chunks_.start(chunk);
  const std::size_t length = chunks_.length(chunk);
  const std::size_t per_line = std::max<std::size_t>(1, kLine / element_bytes_);
  const std::size_t even = (length + sources_.size() - 1) / sources_.size();
  const std::size_t each = std::min(slice_, (even + per_line - 1) / per_line * per_line);
  const std::size_t first = std::min(length, each * static_cast<std::size_t>(rank));
  return {start + first, std::min(each, length - first)};
}

/// For the others, each slice where the rank that reduces it looks for it.
void AllReduce::stage(std::size_t chunk) {
  for (int r = 0; r < sync_.size(); ++r) {
    const Range range = slice(chunk, r);
    if (r == sync_.rank()) continue;
    copy_bytes(sync_.mine() + place(r), at(range.start), range.length * element_bytes_);
  }
}

/// The result goes to its place and to the staging area, whose part for this rank nobody else uses.
void AllReduce::reduce(std::size_t chunk) {
  const int rank = sync_.rank();
  const Range range = slice(chunk, rank);
  for (int r = 0; r < sync_.size(); ++r) {
    sources_[static_cast<std::size_t>(r)] = r == rank ? at(range.start) : sync_.of(r) + place(rank);
  }
  void* const destinations[] = {at(range.start), sync_.mine() + place(rank)};
  reducer_(sources_.data(), sync_.size(), destinations, 2, range.length);
}

void AllReduce::collect(std::size_t chunk) {
  for (int r = 0; r < sync_.size(); ++r) {
    const Range range = slice(chunk, r);
    if (r == sync_.rank()) continue;
    copy_bytes(at(range.start), sync_.of(r) + place(r), range.length * element_bytes_);
  }
}

/// What each step does: stage one chunk, reduce the one before, collect the one before that.
void AllReduce::pipeline_step(std::size_t i) {
  const std::size_t chunks = chunks_.count();
  if (i >= 2) collect(i - 2);
  if (i >= 1 && i - 1 < chunks) reduce(i - 1);
  if (i < chunks) stage(i);
  if (i < chunks + 1) sync_.step();
}

void AllReduce::first_step(bool staged) {
  if (staged) stage(0);
  sync_.step();
}

void AllReduce::at_once() {
  copy_bytes(sync_.mine(), data_, count_ * element_bytes_);
  sync_.step();
  for (int r = 0; r < sync_.size(); ++r) sources_[static_cast<std::size_t>(r)] = sync_.of(r);
  void* const destination = data_;
  reducer_(sources_.data(), sync_.size(), &destination, 1, count_);
}

/// The buffers of all ranks are visible: each reduces a share of all, and writes it to all.
void AllReduce::in_place() {
  const std::size_t ranks = sources_.size();
  const std::size_t per_line = std::max<std::size_t>(1, kLine / element_bytes_);
  const std::size_t each = ((count_ + ranks - 1) / ranks + per_line - 1) / per_line * per_line;
  const std::size_t start = std::min(count_, each * static_cast<std::size_t>(sync_.rank()));
  std::vector<void*> buffers;
  for (int r = 0; r < sync_.size(); ++r) {
    std::byte* base = sync_.peers()[static_cast<std::size_t>(r)].segment->base();
    buffers.push_back(base + sync_.heap_offset_of(r) + start * element_bytes_);
    sources_[static_cast<std::size_t>(r)] = buffers.back();
  }
  reducer_(sources_.data(), sync_.size(), buffers.data(), sync_.size(), std::min(each, count_ - start));
  sync_.step();
}

bool all_in_heaps(const StepSync& sync) {
  for (int r = 0; r < sync.size(); ++r) {
    if (sync.heap_offset_of(r) < 0) return false;
  }
  return true;
}

bool none_in_a_heap(const StepSync& sync) {
  for (int r = 0; r < sync.size(); ++r) {
    if (sync.heap_offset_of(r) >= 0) return false;
  }
  return true;
}

void AllReduce::in_chunks_after_the_first_step() {
  // Where some buffers lie in heaps and some do not, not all have staged their first chunk.
  for (std::size_t i = none_in_a_heap(sync_) ? 1 : 0; i < chunks_.count() + 2; ++i) pipeline_step(i);
}

}  // namespace

void all_reduce(StepSync& sync, const Heap& heap, void* data, Elements elements, Reduction reduction) {
  AllReduce operation(sync, data, elements, reduction);
  const std::int64_t offset = operation.is_small() ? -1 : heap.offset_of(data, elements.bytes());
  sync.begin({.count = elements.count,
              .operation = Operation::all_reduce,
              .dtype = elements.dtype,
              .reduction = reduction},
             offset);
  if (operation.is_small()) return operation.at_once();
  operation.first_step(offset < 0);
  if (all_in_heaps(sync)) return operation.in_place();
  operation.in_chunks_after_the_first_step();
}

}  // namespace lockstep::shm

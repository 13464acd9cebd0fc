#include "shm/all_reduce.hpp"

#include <vector>

#include "shm/kernels.hpp"

namespace lockstep::shm {
namespace {

/// Up to this size every rank reduces everything: one step instead of two. The limit is higher if ranks share
/// CPUs, because a step then costs more.
constexpr std::size_t kSmall = 4U << 10;
constexpr std::size_t kSmallWhereRanksShareCpus = 16U << 10;

/// One all_reduce. The ranks share the work: each chunk is split into one slice per rank, and each rank
/// reduces its own.
class AllReduce {
 public:
  AllReduce(StepSync& sync, void* data, Elements elements, Reduction reduction)
      : sync_(sync),
        data_(static_cast<std::byte*>(data)),
        element_bytes_(size_of(elements.dtype)),
        count_(elements.count),
        reducer_(reducer_for(elements.dtype, reduction)),
        ranks_(static_cast<std::size_t>(sync.size())),
        slice_(elements_per_part(sync.staging_bytes(), sync.size(), element_bytes_)),
        chunks_{count_, slice_ * ranks_} {}

  bool is_small() const {
    const std::size_t limit = sync_.has_cpu_per_rank() ? kSmall : kSmallWhereRanksShareCpus;
    return count_ * element_bytes_ <= std::min(limit, sync_.staging_bytes());
  }

  void at_once() {
    copy_bytes(sync_.mine(), data_, count_ * element_bytes_);
    sync_.step();
    void* const destination = data_;
    reducer_(sync_.staged(0).data(), sync_.size(), &destination, 1, count_);
  }

  /// In the first step the ranks learn where the buffers of the others are. A rank whose buffer is not in its
  /// heap stages its first chunk in that step.
  void run(bool in_heap) {
    if (!in_heap) stage(0);
    sync_.step();
    std::size_t in_heaps = 0;
    for (int r = 0; r < sync_.size(); ++r) in_heaps += sync_.heap_offset_of(r) >= 0 ? 1 : 0;
    if (in_heaps == ranks_) return in_place();
    // If only some buffers are in heaps, not all ranks have staged their first chunk.
    for (std::size_t i = in_heaps == 0 ? 1 : 0; i < chunks_.count() + 2; ++i) pipeline_step(i);
  }

 private:
  std::byte* at(std::size_t element) const { return data_ + element * element_bytes_; }
  /// Of a rank's slot in a staging area.
  std::size_t slot_offset(int rank) const { return static_cast<std::size_t>(rank) * slice_ * element_bytes_; }

  /// The elements of a chunk that a rank reduces. Small chunks are also distributed over all ranks.
  Range slice(std::size_t chunk, int rank) const {
    const Range own = slice_of(chunks_.length(chunk), sync_.size(), rank, element_bytes_, slice_);
    return {chunks_.start(chunk) + own.start, own.length};
  }

  /// Stages each slice for the rank that reduces it, in that rank's slot.
  void stage(std::size_t chunk) {
    for (int r = 0; r < sync_.size(); ++r) {
      const Range range = slice(chunk, r);
      if (r == sync_.rank()) continue;
      copy_bytes(sync_.mine() + slot_offset(r), at(range.start), range.length * element_bytes_);
    }
  }

  /// Writes the result to its place and to this rank's own part of its staging area, otherwise unused.
  void reduce(std::size_t chunk) {
    const std::size_t own = slot_offset(sync_.rank());
    const Range range = slice(chunk, sync_.rank());
    void* const destinations[] = {at(range.start), sync_.mine() + own};
    reducer_(sync_.staged(own, at(range.start)).data(), sync_.size(), destinations, 2, range.length);
  }

  void collect(std::size_t chunk) {
    for (int r = 0; r < sync_.size(); ++r) {
      const Range range = slice(chunk, r);
      if (r == sync_.rank()) continue;
      copy_bytes(at(range.start), sync_.of(r) + slot_offset(r), range.length * element_bytes_);
    }
  }

  /// One step of the pipeline. A message may be larger than a staging area, so it goes through in chunks, and
  /// a chunk needs three stages with a barrier between each two: every rank stages it, each rank reduces its
  /// own slice of it, every rank collects the slices of the others. One barrier serves three chunks at a
  /// time:
  ///
  ///     step        0        1        2        3        4
  ///     stage       chunk 0  chunk 1  chunk 2
  ///     reduce               chunk 0  chunk 1  chunk 2
  ///     collect                       chunk 0  chunk 1  chunk 2
  ///
  /// A staging area has one slot per rank, of the size of a slice. The slice for rank r is staged in slot
  /// r; this rank's own slot is free, and takes its result for the others to collect. So the result of chunk
  /// i - 1 and the input of chunk i are in one area at a time, in different slots. The areas alternate from
  /// step to step (StepSync): what a rank reads in step i was written in step i - 1, and is overwritten in
  /// step i + 1, after the barrier that ends step i, which all ranks reach only when they have read it.
  /// n chunks take n + 2 steps and n + 1 barriers: the last step only reads.
  void pipeline_step(std::size_t i) {
    const std::size_t chunks = chunks_.count();
    if (i >= 2) collect(i - 2);
    if (i >= 1 && i - 1 < chunks) reduce(i - 1);
    if (i < chunks) stage(i);
    if (i < chunks + 1) sync_.step();
  }

  /// The buffers of all ranks are visible: each rank reduces one slice of all buffers and writes it to all.
  void in_place() {
    const Range own = slice_of(count_, sync_.size(), sync_.rank(), element_bytes_);
    std::vector<void*> buffers;
    for (int r = 0; r < sync_.size(); ++r)
      buffers.push_back(sync_.heap_buffer_of(r) + own.start * element_bytes_);
    const std::vector<const void*> sources(buffers.begin(), buffers.end());
    reducer_(sources.data(), sync_.size(), buffers.data(), sync_.size(), own.length);
    sync_.step();
  }

  StepSync& sync_;
  std::byte* data_;
  std::size_t element_bytes_;
  std::size_t count_;
  Reducer reducer_;
  std::size_t ranks_;
  std::size_t slice_;
  Chunks chunks_;
};

}  // namespace

void all_reduce(StepSync& sync, const Heap& heap, void* data, Elements elements, Reduction reduction) {
  AllReduce operation(sync, data, elements, reduction);
  const std::int64_t offset = operation.is_small() ? -1 : heap.offset_of(data, elements.bytes());
  sync.begin(call_of(Operation::all_reduce, elements, reduction), offset);
  if (operation.is_small()) return operation.at_once();
  operation.run(offset >= 0);
}

}  // namespace lockstep::shm

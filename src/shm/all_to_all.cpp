#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "shm/chunks.hpp"
#include "shm/collectives.hpp"

namespace lockstep::shm {
namespace {

/// The counts of all pairs, which every rank shows in the first step: row `from`, column `to`.
class Counts {
 public:
  explicit Counts(int size)
      : size_(static_cast<std::size_t>(size)), sent_(size_ * size_), expected_(size_ * size_) {}

  static void write(std::byte* area, std::span<const Part> inputs, std::span<const Part> outputs) {
    auto* numbers = reinterpret_cast<std::uint64_t*>(area);
    for (const auto& part : inputs) *numbers++ = part.count;
    for (const auto& part : outputs) *numbers++ = part.count;
  }

  void read(int rank, const std::byte* area) {
    const auto* numbers = reinterpret_cast<const std::uint64_t*>(area);
    const auto row = static_cast<std::size_t>(rank);
    for (std::size_t other = 0; other < size_; ++other) {
      sent_[row * size_ + other] = numbers[other];
      expected_[other * size_ + row] = numbers[size_ + other];
    }
  }

  /// The same words on every rank, because all see all counts; "" when all pairs agree.
  std::string disagreement(const GroupInfo& members) const {
    for (std::size_t pair = 0; pair < sent_.size(); ++pair) {
      if (sent_[pair] == expected_[pair]) continue;
      const auto from = static_cast<int>(pair / size_);
      const auto to = static_cast<int>(pair % size_);
      return fmt::format("{} sends {} elements to {}, which expects {}", members.called(from), sent_[pair],
                         members.called(to), expected_[pair]);
    }
    return "";
  }

  std::uint64_t largest() const { return *std::max_element(sent_.begin(), sent_.end()); }

 private:
  std::size_t size_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> expected_;
};

Counts exchange_counts(StepSync& sync, std::span<const Part> inputs, std::span<const Part> outputs) {
  Counts counts(sync.size());
  Counts::write(sync.mine(), inputs, outputs);
  sync.step();
  for (int r = 0; r < sync.size(); ++r) counts.read(r, sync.of(r));
  if (const auto text = counts.disagreement(sync.members()); !text.empty()) sync.fail(text);
  return counts;
}

}  // namespace

void all_to_all(StepSync& sync, std::span<const Part> inputs, std::span<const Part> outputs, Dtype dtype) {
  sync.begin({.operation = Operation::all_to_all, .dtype = dtype});
  const Counts counts = exchange_counts(sync, inputs, outputs);
  const std::size_t size = size_of(dtype);
  const std::size_t each = elements_per_part(sync.staging_bytes(), sync.size(), size);
  const std::size_t rounds = Chunks{counts.largest(), each}.count();
  const auto place = [&](int r) { return static_cast<std::size_t>(r) * each * size; };
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto piece_of = [&](const Part& part) {
      const Chunks chunks{part.count, each};
      return Part{static_cast<std::byte*>(part.data) + chunks.start(i) * size, chunks.length(i) * size};
    };
    for (int r = 0; r < sync.size(); ++r) {
      const Part piece = piece_of(inputs[static_cast<std::size_t>(r)]);
      copy_bytes(sync.mine() + place(r), piece.data, piece.count);
    }
    sync.step();
    for (int r = 0; r < sync.size(); ++r) {
      const Part piece = piece_of(outputs[static_cast<std::size_t>(r)]);
      copy_bytes(piece.data, sync.of(r) + place(sync.rank()), piece.count);
    }
  }
}

}  // namespace lockstep::shm

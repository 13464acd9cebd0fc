#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// The description of an operation, without its data. Small and without allocations, because every operation
/// creates one.
struct OpMeta {
  /// Static strings: "all_reduce", "Float", "sum"; empty if there is none.
  const char* name = "";
  const char* dtype = "";
  const char* reduce_op = "";
  /// The root of a collective or the other side of a message; -1: none, or any.
  std::int32_t peer = -1;
  bool is_message = false;
  std::int32_t tag = 0;  // Of messages.
  /// Ranks may call it with different sizes (all_to_all).
  bool sizes_may_differ = false;
  /// Number of this rank's tensors; `sizes` are those of the first.
  std::int32_t tensors = 1;
  std::int32_t dimensions = 0;
  /// The first dimensions; `elements` counts all elements.
  std::array<std::int64_t, 5> sizes{};
  std::int64_t elements = 0;
  std::int64_t bytes = 0;

  /// The recorded sizes.
  std::span<const std::int64_t> shown_sizes() const {
    return std::span(sizes).first(std::min(static_cast<std::size_t>(dimensions), sizes.size()));
  }
  /// "all_reduce of sum, Float [4, 2]", "broadcast from 1, Long [1]".
  std::string text() const;
  /// What must be the same on all ranks: "all_reduce of sum, 8 x Float". Shapes may differ, as in c10d.
  std::string fingerprint() const;
  /// The same in the format of src/shm, with the number and, if there is one, the label: "all_reduce #412
  /// (float32, 8 elements, sum)".
  std::string call(std::uint64_t number, std::string_view label) const;
};

/// The label of an operation, such as "bucket 2". Of limited length, so that it can be copied cheaply.
class LabelText {
 public:
  LabelText() = default;
  explicit LabelText(std::string_view text) noexcept;
  std::string_view view() const noexcept { return {letters_.data(), length_}; }

 private:
  std::array<char, 31> letters_{};
  std::uint8_t length_ = 0;
};

/// A rank's call of a collective.
struct CollectiveCall {
  OpMeta meta;
  std::uint64_t number = 0;
  LabelText label = {};
  std::chrono::milliseconds timeout{0};  // 0: the group's.

  std::string text() const { return meta.call(number, label.view()); }
};

/// Labels the operations that this thread starts during its lifetime, in messages, traces and reports.
///
///     const OperationLabel label("bucket 2");
///     auto work = group->allreduce(tensors);
///
/// Scopes nest: the innermost one applies. Costs a few nanoseconds. *Local*.
class OperationLabel {
 public:
  explicit OperationLabel(std::string_view text) noexcept;
  ~OperationLabel();
  OperationLabel(const OperationLabel&) = delete;
  OperationLabel& operator=(const OperationLabel&) = delete;

  /// This thread's current label; empty: none.
  static const LabelText& current() noexcept;

 private:
  LabelText before_;
};

/// "8 MiB", "1.5 KiB", "12 bytes".
std::string size_text(std::int64_t bytes);

/// "[4, 2]".
std::string sizes_text(const OpMeta& meta);

}  // namespace lockstep::comm

#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// What one operation of a group is, without its data: small, and without memory of its own, because one is
/// made for every operation.
struct OpMeta {
  /// Names that live as long as the program: "all_reduce", "Float", "sum"; empty where there is none.
  const char* name = "";
  const char* dtype = "";
  const char* reduce_op = "";
  /// The root of a rooted collective, the other side of a message; -1: none, or anybody.
  std::int32_t peer = -1;
  bool is_message = false;
  std::int32_t tag = 0;  // Of a message.
  /// Ranks may call it with different sizes (all_to_all).
  bool sizes_may_differ = false;
  /// How many tensors of `sizes` this rank gives.
  std::int32_t tensors = 1;
  std::int32_t dimensions = 0;
  /// The first ones; `elements` counts all.
  std::array<std::int64_t, 5> sizes{};
  std::int64_t elements = 0;
  std::int64_t bytes = 0;

  /// As many of the sizes as are kept.
  std::span<const std::int64_t> shown_sizes() const {
    return std::span(sizes).first(std::min(static_cast<std::size_t>(dimensions), sizes.size()));
  }
  /// "all_reduce of sum, Float [4, 2]", "broadcast from 1, Long [1]".
  std::string text() const;
  /// What all ranks must agree on: "all_reduce of sum, 8 x Float". Shapes may differ, as c10d allows.
  std::string fingerprint() const;
  /// The same in the words of src/shm, which names operations by their numbers: "all_reduce #412 (float32, 8
  /// elements, sum)", with a label behind it if there is one.
  std::string call(std::uint64_t number, std::string_view label) const;
};

/// What the program calls an operation, "bucket 2": of limited length, so that it can be copied anywhere.
class LabelText {
 public:
  LabelText() = default;
  explicit LabelText(std::string_view text) noexcept;
  std::string_view view() const noexcept { return {letters_.data(), length_}; }

 private:
  std::array<char, 31> letters_{};
  std::uint8_t length_ = 0;
};

/// A collective as a rank calls it.
struct CollectiveCall {
  OpMeta meta;
  std::uint64_t number = 0;
  LabelText label = {};
  std::chrono::milliseconds timeout{0};  // 0: the group's.

  std::string text() const { return meta.call(number, label.view()); }
};

/// Names the operations that this thread starts as long as it lives: in messages, traces and reports.
///
///     const OperationLabel label("bucket 2");
///     auto work = group->allreduce(tensors);
///
/// They nest: the innermost one counts. Costs some nanoseconds. *Local*.
class OperationLabel {
 public:
  explicit OperationLabel(std::string_view text) noexcept;
  ~OperationLabel();
  OperationLabel(const OperationLabel&) = delete;
  OperationLabel& operator=(const OperationLabel&) = delete;

  /// The label of this thread now; empty: none.
  static const LabelText& current() noexcept;

 private:
  LabelText before_;
};

/// "8 MiB", "1.5 KiB", "12 bytes".
std::string size_text(std::int64_t bytes);

/// "[4, 2]".
std::string sizes_text(const OpMeta& meta);

}  // namespace lockstep::comm

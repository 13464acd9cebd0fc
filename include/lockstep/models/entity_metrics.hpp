#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

class ProcessGroup;

namespace metrics {

/// Precision, recall and F1 of the entities in tagged texts, and the accuracy of the tags: the functions of
/// the Python package seqeval with average="micro", in its mode without a scheme, which is that of conlleval.
/// An entity is right if its type, its first and its last token are.
///
/// Tags are "O", or "B-", "I-", "E-", "S-" and the type: IOB2, IOE2, IOBES, and whatever mixture of them a
/// model predicts. The rules of metrics.hpp hold: a few sums, of_all_ranks() is *Collective*, a copy has sums
/// of its own.
class Entities {
 public:
  struct Scores {
    double precision = 0, recall = 0, f1 = 0;
    /// Entities among the labels.
    std::int64_t number = 0;
  };

  /// The tags by class number. Throws UsageError without tags, and for an empty one.
  explicit Entities(std::vector<std::string> tags);

  /// `labels` [rows, tokens], integers; tokens with kIgnoredLabel are no part of their text. `predictions`
  /// are class numbers of this shape, or scores [rows, tokens, classes]. Throws UsageError for other shapes,
  /// DataError for a number that is no class.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// One text in memory; both have the same length.
  void update(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels);
  /// A new metric with the sums of all ranks. *Collective*.
  Entities of_all_ranks(const ProcessGroup& group) const;

  /// The types of the tags, in byte order.
  const std::vector<std::string>& types() const noexcept { return types_; }
  /// Of all types together; what is 0/0 is 0, as in seqeval. *Local*.
  Scores overall() const;
  /// Of the type with this number in types().
  Scores of_type(std::size_t type) const;
  /// The share of tokens whose tag is right. Throws UsageError if there were none.
  double accuracy() const;

  /// The names and values that a Trainer logs.
  static std::vector<std::string> names() { return {"precision", "recall", "f1", "accuracy"}; }
  std::vector<double> values() const;

 private:
  /// A tag as seqeval reads it: its letter, and the number of its type, that behind the last for none.
  struct Tag {
    char letter = 'O';
    std::size_t type = 0;
  };
  /// Of one type.
  struct Counts {
    std::int64_t right = 0, predicted = 0, actual = 0;
  };
  struct Entity {
    std::size_t type, begin, end;
    auto operator<=>(const Entity&) const = default;
  };

  std::size_t number_of_type(const std::string& type) const;
  std::vector<Entity> entities_in(const std::vector<std::int64_t>& classes) const;
  static Scores scores_of(const Counts& counts);

  std::vector<std::string> types_;
  std::vector<Tag> tags_;
  /// By type.
  std::vector<Counts> counts_;
  std::int64_t right_tokens_ = 0, tokens_ = 0;
};

}  // namespace metrics
}  // namespace lockstep

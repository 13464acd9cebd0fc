#include "lockstep/models/entity_metrics.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"

namespace lockstep::metrics {
namespace {

/// What follows the first character and the first "-" behind it; "_" if that is nothing.
std::string type_of_tag(const std::string& tag) {
  std::size_t begin = 1;
  // A character has several bytes.
  while (begin < tag.size() && (static_cast<unsigned char>(tag[begin]) & 0xC0) == 0x80) ++begin;
  const std::string rest = tag.substr(begin);
  const auto dash = rest.find('-');
  const std::string type = dash == std::string::npos ? rest : rest.substr(dash + 1);
  return type.empty() ? "_" : type;
}

bool is_one_of(char letter, std::string_view letters) { return letters.find(letter) != letters.npos; }

// The rules of seqeval's end_of_chunk() and start_of_chunk().

/// Whether an entity ends between two tags: their letters, and whether they are of one type.
bool ends_between(char before, char after, bool same_type) {
  if (is_one_of(before, "ES")) return true;
  if (is_one_of(before, "BI") && is_one_of(after, "BSO")) return true;
  return !is_one_of(before, "O.") && !same_type;
}

bool begins_between(char before, char after, bool same_type) {
  if (is_one_of(after, "BS")) return true;
  if (is_one_of(before, "ESO") && is_one_of(after, "EI")) return true;
  return !is_one_of(after, "O.") && !same_type;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void check_tag(const char* what, std::int64_t number, std::size_t tags) {
  if (number >= 0 && static_cast<std::size_t>(number) < tags) return;
  throw DataError(fmt::format("Entities: {} {} is not a class: expected 0 to {}.", what, number, tags - 1));
}

}  // namespace

Entities::Entities(std::vector<std::string> tags) {
  if (tags.empty()) throw UsageError("Entities: expected the tags of the classes, but got none.");
  std::set<std::string> types;
  for (const auto& tag : tags) {
    if (tag.empty()) throw UsageError("Entities: expected tags such as O and B-PER, but one is empty.");
    if (!is_one_of(tag.front(), "O.")) types.insert(type_of_tag(tag));
  }
  types_.assign(types.begin(), types.end());
  counts_.resize(types_.size());
  for (const auto& tag : tags) tags_.push_back({tag.front(), number_of_type(type_of_tag(tag))});
}

std::size_t Entities::number_of_type(const std::string& type) const {
  const auto place = std::lower_bound(types_.begin(), types_.end(), type);
  return place != types_.end() && *place == type ? static_cast<std::size_t>(place - types_.begin())
                                                 : types_.size();
}

std::vector<Entities::Entity> Entities::entities_in(const std::vector<std::int64_t>& classes) const {
  std::vector<Entity> found;
  // Around a text is O.
  const Tag around{.letter = 'O', .type = number_of_type("_")};
  Tag before = around;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= classes.size(); ++i) {
    const Tag tag = i < classes.size() ? tags_[static_cast<std::size_t>(classes[i])] : around;
    const bool same_type = before.type == tag.type;
    if (ends_between(before.letter, tag.letter, same_type)) found.push_back({before.type, begin, i - 1});
    if (begins_between(before.letter, tag.letter, same_type)) begin = i;
    before = tag;
  }
  return found;
}

void Entities::update(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels) {
  if (predictions.size() != labels.size())
    throw UsageError(
        fmt::format("Entities: {} predictions for {} labels.", predictions.size(), labels.size()));
  std::vector<std::int64_t> predicted, actual;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    check_tag("label", labels[i], tags_.size());
    check_tag("prediction", predictions[i], tags_.size());
    actual.push_back(labels[i]);
    predicted.push_back(predictions[i]);
  }
  auto made = entities_in(predicted), wanted = entities_in(actual);
  for (const auto& entity : made) ++counts_[entity.type].predicted;
  for (const auto& entity : wanted) ++counts_[entity.type].actual;
  std::sort(made.begin(), made.end());
  std::sort(wanted.begin(), wanted.end());
  std::vector<Entity> right;
  std::set_intersection(made.begin(), made.end(), wanted.begin(), wanted.end(), std::back_inserter(right));
  for (const auto& entity : right) ++counts_[entity.type].right;
  for (std::size_t i = 0; i < actual.size(); ++i) right_tokens_ += predicted[i] == actual[i] ? 1 : 0;
  tokens_ += static_cast<std::int64_t>(actual.size());
}

void Entities::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const at::Tensor classes = predictions.is_floating_point() ? predictions.argmax(-1) : predictions;
  if (labels.dim() != 2 || classes.sizes() != labels.sizes()) {
    throw UsageError(fmt::format(
        "Entities: predictions {} do not fit labels {}: expected labels [rows, tokens], and class numbers of "
        "this shape or scores with one dimension more for the classes.",
        c10::str(predictions.sizes()), c10::str(labels.sizes())));
  }
  const at::Tensor made = classes.detach().to(at::kCPU, at::kLong).contiguous();
  const at::Tensor wanted = labels.detach().to(at::kCPU, at::kLong).contiguous();
  const auto tokens = static_cast<std::size_t>(labels.size(1));
  for (std::int64_t row = 0; row < labels.size(0); ++row) {
    const auto at_row = static_cast<std::size_t>(row) * tokens;
    update(std::span(made.const_data_ptr<std::int64_t>() + at_row, tokens),
           std::span(wanted.const_data_ptr<std::int64_t>() + at_row, tokens));
  }
}

Entities Entities::of_all_ranks(const ProcessGroup& group) const {
  std::vector<std::int64_t> sums{right_tokens_, tokens_};
  for (const auto& counts : counts_) sums.insert(sums.end(), {counts.right, counts.predicted, counts.actual});
  const at::Tensor all = at::tensor(sums, at::kLong).to(group.object_device());
  group.all_reduce(all);
  const at::Tensor here = all.cpu();
  const auto* next = here.const_data_ptr<std::int64_t>();
  Entities joined = *this;
  joined.right_tokens_ = *next++;
  joined.tokens_ = *next++;
  for (auto& counts : joined.counts_) {
    counts.right = *next++;
    counts.predicted = *next++;
    counts.actual = *next++;
  }
  return joined;
}

Entities::Scores Entities::scores_of(const Counts& counts) {
  const double precision = share(counts.right, counts.predicted), recall = share(counts.right, counts.actual);
  const double both = precision + recall;
  return {.precision = precision,
          .recall = recall,
          .f1 = both == 0 ? 0 : 2 * precision * recall / both,
          .number = counts.actual};
}

Entities::Scores Entities::overall() const {
  Counts all;
  for (const auto& counts : counts_) {
    all.right += counts.right;
    all.predicted += counts.predicted;
    all.actual += counts.actual;
  }
  return scores_of(all);
}

Entities::Scores Entities::of_type(std::size_t type) const { return scores_of(counts_.at(type)); }

double Entities::accuracy() const {
  if (tokens_ == 0) throw UsageError("Entities: no tokens have been seen: call update() first.");
  return share(right_tokens_, tokens_);
}

std::vector<double> Entities::values() const {
  const Scores all = overall();
  return {all.precision, all.recall, all.f1, accuracy()};
}

}  // namespace lockstep::metrics

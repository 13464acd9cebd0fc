#include "lockstep/datasets/iterable_tensors.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using List = Value::List;

bool is_tensor_like(const Value& value) {
  const auto* const list = std::get_if<List>(&value.variant());
  if (list == nullptr) return value.is_number() || std::holds_alternative<bool>(value.variant());
  return std::all_of(list->begin(), list->end(), is_tensor_like);
}

/// The numbers of a value in order, and the lengths of its lists.
struct Numbers {
  std::vector<const Value*> values;
  std::vector<std::int64_t> sizes;

  void add(const Value& value, std::size_t depth) {
    const auto* const list = std::get_if<List>(&value.variant());
    if (list == nullptr) {
      values.push_back(&value);
      if (depth == sizes.size()) return;
      throw DataError("its lists have different depths");
    }
    // The first list of a level determines the length.
    if (depth == sizes.size() && values.empty()) sizes.push_back(std::ssize(*list));
    if (depth == sizes.size() || sizes[depth] != std::ssize(*list))
      throw DataError("its lists have different lengths");
    for (const auto& one : *list) add(one, depth + 1);
  }
};

template <typename Element, typename Read>
at::Tensor filled(const Numbers& numbers, at::ScalarType dtype, const Read& read) {
  at::Tensor tensor = at::empty(numbers.sizes, dtype);
  auto* to = tensor.mutable_data_ptr<Element>();
  for (const Value* value : numbers.values) *to++ = read(*value);
  return tensor;
}

at::Tensor tensor_of(const Value& value) {
  Numbers numbers;
  numbers.add(value, 0);
  const auto all = [&](const auto& is_kind) {
    return std::all_of(numbers.values.begin(), numbers.values.end(),
                       [&](const Value* one) { return is_kind(one->variant()); });
  };
  const bool is_bool = !numbers.values.empty() &&
                       all([](const Value::Variant& one) { return std::holds_alternative<bool>(one); });
  if (is_bool) return filled<bool>(numbers, at::kBool, [](const Value& one) { return one.boolean(); });
  const bool is_whole = all([](const Value::Variant& one) { return !std::holds_alternative<double>(one); });
  if (is_whole)
    return filled<std::int64_t>(numbers, at::kLong, [](const Value& one) { return one.integer(); });
  return filled<float>(numbers, at::kFloat,
                       [](const Value& one) { return static_cast<float>(one.number()); });
}

class Reader final : public StreamReader {
 public:
  Reader(RowStream rows, IterableTensorOptions options)
      : rows_(std::move(rows)), options_(std::move(options)) {}

  std::optional<Example> next() override {
    const auto row = rows_.next();
    if (!row) return std::nullopt;
    if (options_.example) return options_.example(*row);
    Example example;
    if (options_.columns.empty()) {
      for (const auto& [name, value] : *row) {
        if (is_tensor_like(value)) add(example, name, value);
      }
    }
    for (const auto& column : options_.columns) {
      const auto field =
          std::find_if(row->begin(), row->end(), [&](const auto& entry) { return entry.first == column; });
      if (field == row->end()) throw DataError(fmt::format("a row has no column '{}'", column));
      const auto* const text = std::get_if<std::string>(&field->second.variant());
      text ? example.set_texts(column, {*text}) : add(example, column, field->second);
    }
    return example;
  }

  std::string state_dict() const override { return rows_.state_dict(); }

 private:
  static void add(Example& example, const std::string& name, const Value& value) {
    try {
      example.insert(name, tensor_of(value));
    } catch (const Error& error) {
      throw DataError(
          fmt::format("column '{}' has no tensor in a row: {}. Give columns without it, or a "
                      "function IterableTensorOptions::example.",
                      name, error.what()));
    }
  }

  RowStream rows_;
  IterableTensorOptions options_;
};

}  // namespace

IterableTensorDataset::IterableTensorDataset(IterableDataset data, IterableTensorOptions options)
    : data_(std::move(data)), options_(std::move(options)) {}

std::unique_ptr<StreamReader> IterableTensorDataset::open(const StreamPart& part, std::int64_t epoch,
                                                          const std::string& state) const {
  if (part.num_replicas > 1 && data_.is_split()) {
    throw UsageError(
        "the stream is already split by split_dataset_by_node(), and its loader would split each part "
        "among "
        "the ranks once more. Give the loader the whole stream.");
  }
  auto mine = part.num_replicas == 1 ? data_ : split_dataset_by_node(data_, part.rank, part.num_replicas);
  mine.set_epoch(epoch);
  return std::make_unique<Reader>(mine.open(part.num_workers, part.worker, state), options_);
}

}  // namespace lockstep

// What dataset_compare.py runs beside Python's `datasets`: loads a data set, applies operations, and prints
// or writes it.
//
//   dataset_peer SOURCE [OPERATION...] [save=FOLDER | json=FILE | csv=FILE | arrow=FILE | parquet=FILE |
//   dict=FOLDER]
//
// An operation is NAME=ARGUMENT with further arguments behind slashes. Without a destination the features are
// printed on the first line, and then a line of JSON for each row.

#include <functional>
#include <iostream>
#include <map>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/dataset_dict.hpp"

namespace {

using lockstep::ArrowDataset;
using Words = std::vector<std::string>;

Words split(const std::string& text, char at) {
  Words words;
  std::size_t begin = 0;
  for (auto end = text.find(at); end != std::string::npos; end = text.find(at, begin)) {
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  words.push_back(text.substr(begin));
  return words;
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> values;
  for (const auto& word : split(text, ',')) values.push_back(std::stod(word));
  return values;
}

lockstep::SplitSize share(const std::string& word) {
  if (word.find('.') == std::string::npos) return std::int64_t{std::stoll(word)};
  return std::stod(word);
}

ArrowDataset::Split parts(const ArrowDataset& data, const Words& words) {
  lockstep::SplitOptions options;
  options.test_size = share(words.at(0));
  options.seed = std::stoull(words.at(1));
  options.shuffle = words.at(2) == "shuffle";
  if (words.size() > 3) options.stratify_by_column = words[3];
  return data.train_test_split(options);
}

ArrowDataset sorted(const ArrowDataset& data, const Words& words) {
  std::vector<lockstep::SortKey> keys;
  for (std::size_t place = 1; place < words.size(); ++place) {
    const bool descending = words[place].starts_with("-");
    keys.push_back({words[place].substr(descending ? 1 : 0), descending});
  }
  return data.sort(
      keys, words.at(0) == "at_end" ? lockstep::NullPlacement::at_end : lockstep::NullPlacement::at_start);
}

/// strategy, seed, probabilities separated by commas (or none), lengths of the parts to interleave.
ArrowDataset interleaved(const ArrowDataset& data, const Words& words) {
  const std::map<std::string, lockstep::StoppingStrategy> strategies = {
      {"first_exhausted", lockstep::StoppingStrategy::first_exhausted},
      {"all_exhausted", lockstep::StoppingStrategy::all_exhausted},
      {"all_exhausted_without_replacement", lockstep::StoppingStrategy::all_exhausted_without_replacement}};
  std::vector<ArrowDataset> sources;
  std::int64_t start = 0;
  for (const auto length : numbers(words.at(3))) {
    sources.push_back(data.slice(start, static_cast<std::int64_t>(length)));
    start += static_cast<std::int64_t>(length);
  }
  const auto probabilities = words.at(2) == "none" ? std::vector<double>() : numbers(words[2]);
  return ArrowDataset::interleave(sources, probabilities, std::stoull(words.at(1)),
                                  strategies.at(words.at(0)));
}

ArrowDataset selected(const ArrowDataset& data, const std::string& rows) {
  std::vector<std::int64_t> places;
  for (const auto row : numbers(rows)) places.push_back(static_cast<std::int64_t>(row));
  return data.select(places);
}

/// A type by its name; "list:NAME", and "FIELD:NAME,..." for a structure.
lockstep::DataType type_of(const std::string& word) {
  if (word.find(':') == std::string::npos) return lockstep::DataType::named(word);
  if (word.starts_with("list:")) return lockstep::DataType::list(lockstep::DataType::named(word.substr(5)));
  std::vector<lockstep::Field> fields;
  for (const auto& field : split(word, ',')) {
    const auto parts = split(field, ':');
    fields.push_back({parts.at(0), lockstep::DataType::named(parts.at(1))});
  }
  return lockstep::DataType::struct_(std::move(fields));
}

using Operation = std::function<ArrowDataset(const ArrowDataset&, const Words&)>;

const std::map<std::string, Operation> kOperations = {
    {"shuffle", [](const auto& data, const Words& words) { return data.shuffle(std::stoull(words.at(0))); }},
    {"train", [](const auto& data, const Words& words) { return parts(data, words).train; }},
    {"test", [](const auto& data, const Words& words) { return parts(data, words).test; }},
    {"shard",
     [](const auto& data, const Words& words) {
       return data.shard(std::stoll(words.at(0)), std::stoll(words.at(1)), words.at(2) == "contiguous");
     }},
    {"select", [](const auto& data, const Words& words) { return selected(data, words.at(0)); }},
    {"slice",
     [](const auto& data, const Words& words) {
       return data.slice(std::stoll(words.at(0)), std::stoll(words.at(1)));
     }},
    {"sort", sorted},
    {"interleave", interleaved},
    {"concatenate",
     [](const auto& data, const Words& words) {
       return ArrowDataset::concatenate({data, ArrowDataset::load(words.at(0))});
     }},
    {"twice",
     [](const auto& data, const Words&) {
       return ArrowDataset::concatenate({data, data});
     }},
    {"flatten", [](const auto& data, const Words&) { return data.flatten_indices(); }},
    {"remove", [](const auto& data, const Words& words) { return data.remove_columns({words.at(0)}); }},
    {"keep", [](const auto& data, const Words& words) { return data.select_columns(words); }},
    {"rename",
     [](const auto& data, const Words& words) { return data.rename_column(words.at(0), words.at(1)); }},
    {"cast",
     [](const auto& data, const Words& words) {
       return data.cast_column(words.at(0), lockstep::Feature(type_of(words.at(1))));
     }},
    {"encode", [](const auto& data, const Words& words) { return data.class_encode_column(words.at(0)); }},
    {"copy", [](const auto& data,
                const Words& words) { return data.add_column(words.at(1), data.column(words.at(0))); }},
};

void print(const ArrowDataset& data) {
  std::cout << data.features().to_json() << '\n';
  for (std::int64_t row = 0; row < data.num_rows(); ++row)
    std::cout << data.row(row).value().to_json() << '\n';
}

const std::map<std::string, std::function<void(const ArrowDataset&, const std::string&)>> kDestinations = {
    {"save", [](const auto& data,
                const std::string& path) { data.save_to_disk(path, {.num_shards = 3, .batch_rows = 7}); }},
    {"json", [](const auto& data, const std::string& path) { data.to_json(path); }},
    {"csv", [](const auto& data, const std::string& path) { data.to_csv(path); }},
    {"arrow", [](const auto& data, const std::string& path) { data.to_arrow(path, 10); }},
    {"parquet", [](const auto& data, const std::string& path) { data.to_parquet(path, 10); }},
    {"dict",
     [](const auto& data, const std::string& path) {
       const auto both = data.train_test_split({.test_size = 0.3, .seed = 1});
       lockstep::DatasetDict({{"train", both.train}, {"test", both.test}}).save_to_disk(path);
     }},
    {"unique",
     [](const auto& data, const std::string& column) {
       for (const auto& value : data.unique(column)) std::cout << value.to_json() << '\n';
     }},
    {"rows", [](const auto& data, const std::string&) { std::cout << data.num_rows() << '\n'; }},
    {"fingerprint", [](const auto& data, const std::string&) { std::cout << data.fingerprint() << '\n'; }},
};

ArrowDataset source(const std::string& word) {
  const auto at = word.find('@');
  if (at == std::string::npos) return ArrowDataset::load(word);
  return lockstep::DatasetDict::load(word.substr(at + 1))[word.substr(0, at)];
}

int run(const Words& words) {
  auto data = source(words.at(0));
  for (std::size_t place = 1; place < words.size(); ++place) {
    const auto equals = words[place].find('=');
    const auto name = words[place].substr(0, equals);
    const auto argument = equals == std::string::npos ? std::string() : words[place].substr(equals + 1);
    if (const auto destination = kDestinations.find(name); destination != kDestinations.end()) {
      destination->second(data, argument);
      return 0;
    }
    data = kOperations.at(name)(data, split(argument, '/'));
  }
  print(data);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(Words(argv + 1, argv + argc));
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}

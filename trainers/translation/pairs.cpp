#include "pairs.hpp"

#include <fmt/core.h>

#include <map>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "text/files.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::ArrowTensorDataset;
using lockstep::DataError;

/// The columns of both sides after reading.
constexpr const char* kSource = "source";
constexpr const char* kTarget = "target";

ArrowDataset one_side(const std::string& flag, const std::string& path, const Options& options,
                      const std::string& column_flag, const std::string& column) {
  const auto table = texts::read_table(flag, path, options.data_format);
  texts::check_texts(table, column_flag, column);
  return table;
}

/// Pairs each row of `left` with the row of `right` of the same id, a text or a number; leaves out rows
/// without one.
std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> joined_rows(const ArrowDataset& left,
                                                                            const ArrowDataset& right) {
  std::map<std::string, std::int64_t> places;
  const auto theirs = right.column("id");
  for (std::int64_t row = 0; row < theirs.size(); ++row) {
    if (const auto id = theirs.value(row); !id.is_null()) places.emplace(id.to_json(), row);
  }
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> rows;
  const auto ours = left.column("id");
  for (std::int64_t row = 0; row < ours.size(); ++row) {
    const auto found = places.find(ours.value(row).to_json());
    if (found == places.end()) continue;
    rows.first.push_back(row);
    rows.second.push_back(found->second);
  }
  return rows;
}

ArrowDataset two_columns(const ArrowDataset& sources, const std::string& source, const ArrowDataset& targets,
                         const std::string& target) {
  return ArrowDataset::from_columns({{kSource, sources.column(source)}, {kTarget, targets.column(target)}});
}

ArrowDataset joined(const ArrowDataset& sources, const ArrowDataset& targets, const Options& options,
                    const std::string& file) {
  if (sources.has_column("id") && targets.has_column("id")) {
    const auto [left, right] = joined_rows(sources, targets);
    if (left.empty()) throw DataError(file + " has no 'id' in common with the texts to translate.");
    return two_columns(sources.select(left), options.source_column, targets.select(right),
                       options.target_column);
  }
  if (sources.num_rows() != targets.num_rows()) {
    throw DataError(fmt::format("{} has {} rows for {} texts, and no column 'id' to join them by.", file,
                                targets.num_rows(), sources.num_rows()));
  }
  return two_columns(sources, options.source_column, targets, options.target_column);
}

/// `part` is "train" or "validation".
ArrowDataset read_pairs(const std::string& part, const std::string& path, const std::string& target_path,
                        const Options& options) {
  const auto sources =
      one_side(fmt::format("--{}-file", part), path, options, "--source-column", options.source_column);
  if (target_path.empty()) {
    texts::check_texts(sources, "--target-column", options.target_column);
    return two_columns(sources, options.source_column, sources, options.target_column);
  }
  const auto targets = one_side(fmt::format("--{}-target-file", part), target_path, options,
                                "--target-column", options.target_column);
  return joined(sources, targets, options, target_path);
}

std::shared_ptr<const ArrowTensorDataset> tokenized(const ArrowDataset& pairs, const Options& options,
                                                    std::int64_t pad_token,
                                                    const lockstep::DistributedContext& ranks) {
  const auto map = texts::map_options(ranks, options.cache_dir, !options.disable_tqdm);
  const auto languages = texts::pretrained_options(options);
  const auto targets = lockstep::tokenize(pairs,
                                          {.tokenizer = options.tokenizer,
                                           .pretrained = languages,
                                           .targets = true,
                                           .column = kTarget,
                                           .max_length = options.max_target_length,
                                           .outputs = {"input_ids"}},
                                          map);
  const auto sources = lockstep::tokenize(pairs,
                                          {.tokenizer = options.tokenizer,
                                           .pretrained = languages,
                                           .column = kSource,
                                           .max_length = options.max_source_length},
                                          map);
  return std::make_shared<ArrowTensorDataset>(
      sources.add_column("labels", targets.column("input_ids")),
      lockstep::ArrowTensorOptions{.padding = {{"input_ids", static_cast<double>(pad_token)},
                                               {"attention_mask", 0},
                                               {"labels", -100}}});
}

}  // namespace

Pairs load_pairs(const Options& options, std::int64_t pad_token, const lockstep::DistributedContext& ranks) {
  const auto load = [&](const std::string& part, const std::string& path, const std::string& target) {
    return tokenized(read_pairs(part, path, target, options), options, pad_token, ranks);
  };
  Pairs pairs{.train = load("train", options.train_file, options.train_target_file), .validation = nullptr};
  if (!options.validation_file.empty())
    pairs.validation = load("validation", options.validation_file, options.validation_target_file);
  return pairs;
}

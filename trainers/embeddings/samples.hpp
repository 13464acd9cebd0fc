#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "options.hpp"

/// The tensors of a batch: int64 [rows, tokens] of text `number`, 0 for queries, 1 for documents, and hard
/// negatives from 2.
std::string ids_column(std::size_t number);
std::string mask_column(std::size_t number);

/// Of a validation file: which rows have the same query and the same document, int64 [rows], or the float
/// similarities of two texts.
inline constexpr const char* kQueryColumn = "query";
inline constexpr const char* kDocumentColumn = "document";
inline constexpr const char* kScoreColumn = "score";

struct Samples {
  std::shared_ptr<const lockstep::Dataset> train;
  /// Null without --validation-file.
  std::shared_ptr<const lockstep::Dataset> validation;
  /// Whether the validation file has similarities.
  bool has_scores = false;
  /// Whether its rows have a hard negative.
  bool has_negatives = false;
  /// The prompts of its texts, if they are the folder's, for people.
  std::string prompts;
};

/// How texts become tokens.
struct TextForm {
  std::int64_t max_length;
  std::int64_t pad_token;
};

/// Reads and tokenizes the files that the options name. The ranks share the work, and the result is cached.
/// *Collective*. Throws UsageError for wrong options, DataError for the files.
Samples load_samples(const Options& options, const TextForm& form, const lockstep::DistributedContext& ranks);

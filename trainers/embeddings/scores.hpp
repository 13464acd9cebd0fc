#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/train/evaluation_metrics.hpp"

// The values of sentence-transformers' evaluators, under their names: `prefix` is the similarity, "cosine" or
// "dot". All functions are *Local*.

/// Whose vectors are compared by which similarity.
struct ScoreOptions {
  bool cosine = true;
  /// Of rows with a score; otherwise of queries and documents.
  bool has_scores = false;
  bool has_negatives = false;
};

/// Vectors [rows, width], and numbers that are the same for rows with the same text, int64 [rows].
struct Search {
  at::Tensor queries, documents, query_numbers, document_numbers;
};

/// How well the documents of each query are found among all documents (InformationRetrievalEvaluator): the
/// share of queries of which one is among the first k ("cosine_accuracy@1", 3, 5 and 10), the mean of 1 / the
/// place of the first, if that is at most 10 ("cosine_mrr@10"), and "cosine_ndcg@10". Texts that several rows
/// have are counted once.
lockstep::Metrics search_metrics(const Search& search, bool cosine);

/// The correlations of the similarities of rows with their scores (EmbeddingSimilarityEvaluator):
/// "pearson_cosine" and "spearman_cosine".
lockstep::Metrics similarity_metrics(const at::Tensor& one, const at::Tensor& other, const at::Tensor& scores,
                                     bool cosine);

/// These of an evaluation's outputs, and with hard negatives the share of queries that are closer to their
/// document than to the first of them (TripletEvaluator): "cosine_accuracy". Rank 0 computes them from all
/// vectors.
lockstep::ComputeMetrics embedding_metrics(const ScoreOptions& options);

/// The name of a text's vectors among a model's outputs.
std::string vectors_output(std::size_t text);

// Rows a second of map, for map.py: map TEXTS.csv TOKENIZER.json WORKERS ROWS
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace {

using namespace lockstep;

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

MapOptions options_for(const std::string& name, int workers) {
  MapOptions options;
  options.name = name;
  options.version = std::string("1");
  options.num_proc = workers;
  options.progress = false;
  return options;
}

Columns tokenize(const MapBatch& batch, const Tokenizer& tokenizer) {
  std::vector<std::string> texts = batch.column<std::string>("text").to_vector();
  ColumnBuilder ids(DataType::list(DataType(TypeKind::int64)));
  for (const auto& encoding : tokenizer.encode_batch(texts, {.threads = 1}))
    ids.append_list(std::span<const std::int64_t>(encoding.ids));
  return {{"input_ids", ids.finish()}};
}

Columns halve(const MapBatch& batch) {
  ColumnBuilder halves(DataType(TypeKind::float64));
  const auto numbers = batch.column<std::int64_t>("n");
  for (std::int64_t i = 0; i < batch.size(); ++i) halves.append(static_cast<double>(numbers[i]) / 2);
  return {{"half", halves.finish()}};
}

ArrowDataset numbers(std::int64_t rows) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) values[static_cast<std::size_t>(row)] = row;
  return ArrowDataset::from_columns({{"n", make_column(values)}});
}

}  // namespace

int main(int, char** argv) {
  const int workers = std::atoi(argv[3]);
  const ArrowDataset texts = ArrowDataset::load(argv[1]);
  const Tokenizer tokenizer = Tokenizer::from_file(argv[2]);
  const auto tokenized = [&] {
    map(
        texts, [&](const Worker&) { return tokenizer; },
        [](const MapBatch& batch, const Tokenizer& own) { return tokenize(batch, own); },
        options_for("tokenize", workers));
  };
  std::cout << "tokenize " << seconds_of(tokenized) << '\n';
  std::cout << "hit " << seconds_of(tokenized) << '\n';
  const ArrowDataset many = numbers(std::atoll(argv[4]));
  std::cout << "numbers " << seconds_of([&] { map(many, halve, options_for("halve", workers)); }) << '\n';
}

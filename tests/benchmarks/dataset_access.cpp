// What dataset_access.py times: reads four columns (text, label, score, tokens) of a data set in an order
// drawn at random.
//
//   dataset_access FOLDER ROUNDS     prints the nanoseconds a row of each round, one a line

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace {

using lockstep::ArrowDataset;

/// Touches what was read, so that no read is left out.
std::int64_t read_rows(const ArrowDataset& data) {
  const auto text = data.column<std::string_view>("text");
  const auto label = data.column<std::int64_t>("label");
  const auto score = data.column<double>("score");
  const auto tokens = data.column<std::span<const std::int32_t>>("tokens");
  std::int64_t sum = 0;
  for (std::int64_t row = 0; row < data.num_rows(); ++row) {
    sum += text[row].front() + label[row] + static_cast<std::int64_t>(score[row]) + tokens[row].front();
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto data = ArrowDataset::load(argv[1]).shuffle(1);
  std::int64_t sum = 0;
  for (int round = 0; round < std::stoi(argv[2]); ++round) {
    const auto begin = std::chrono::steady_clock::now();
    sum += read_rows(data);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    std::cout << time.count() / static_cast<double>(data.num_rows()) << '\n';
  }
  return sum == 0 ? 1 : 0;
}

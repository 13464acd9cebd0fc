#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/tokenizers/tokenizer.hpp"

// Our side of tokenizer.py: tokenizer_benchmark TOKENIZER_JSON TEXT_FILE, then for each line on the standard
// input encodes the file's lines once in one thread and prints the seconds and the number of tokens.

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto tokenizer =
      lockstep::Tokenizer::from_file(argv[1]).with_truncation(std::nullopt).with_padding(std::nullopt);
  std::vector<std::string> lines;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  for (std::string go; std::getline(std::cin, go);) {
    const auto begin = std::chrono::steady_clock::now();
    const auto encodings = tokenizer.encode_batch(lines, {.threads = 1});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::size_t tokens = 0;
    for (const auto& encoding : encodings) tokens += encoding.size();
    std::cout << seconds.count() << " " << tokens << std::endl;
  }
}

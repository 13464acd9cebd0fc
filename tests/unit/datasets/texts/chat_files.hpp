#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/datasets/map.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// The folder of a tokenizer with a chat template, that of golden/chat_data.json, and files of rows.
class ChatFiles : public ::testing::Test {
 protected:
  using Lists = std::vector<std::vector<std::int64_t>>;

  ChatFiles() {
    namespace fs = std::filesystem;
    std::ifstream file(LOCKSTEP_CHAT_DATA_GOLDEN);
    data_ = nlohmann::ordered_json::parse(file);
    fs::create_directories(model());
    fs::copy_file(fs::path(LOCKSTEP_TOKENIZER_DIR) / "roberta.json", model() / "tokenizer.json");
    for (const char* name : {"tokenizer_config.json", "chat_template.jinja"}) {
      write_bytes(model() / name, data_["files"][name].get<std::string>());
    }
  }

  std::filesystem::path model() const { return folder_.path() / "model"; }
  MapOptions map() const { return {.cache_folder = folder_.path() / "cache", .progress = false}; }

  std::filesystem::path file(const nlohmann::ordered_json& rows) {
    std::string lines;
    for (const auto& row : rows) lines += row.dump() + "\n";
    const auto path = folder_.path() / ("rows" + std::to_string(files_++) + ".jsonl");
    write_bytes(path, lines);
    return path;
  }
  ArrowDataset rows(const nlohmann::ordered_json& rows) { return ArrowDataset::load(file(rows)); }

  static Lists lists(const ArrowDataset& data, const char* name) {
    Lists lists;
    const auto column = data.column<std::span<const std::int64_t>>(name);
    for (std::int64_t row = 0; row < data.num_rows(); ++row)
      lists.emplace_back(column[row].begin(), column[row].end());
    return lists;
  }

  nlohmann::ordered_json data_;

 private:
  TemporaryFolder folder_;
  int files_ = 0;
};

}  // namespace lockstep::testing

// The code in the pages about data. tests/lint/snippets.py compares its lines with the pages.

#include <gtest/gtest.h>

#include "folder_of_a_page.hpp"
#include "lockstep/lockstep.hpp"
#include "support/accelerators.hpp"
#include "support/tar.hpp"

namespace {

using lockstep::testing::FolderOfAPage;
using lockstep::testing::run_accelerators;
using lockstep::testing::tar_of;
using lockstep::testing::write_bytes;

void write_tokenizer() {
  std::filesystem::copy_file(LOCKSTEP_TOKENIZER_DIR "/roberta.json", "tokenizer.json");
}

/// A number of three digits.
std::string digits(int number) { return std::to_string(1000 + number).substr(1); }

/// A Zstandard frame of one block that is stored as it is.
std::string zstd_of(const std::string& text) {
  const auto size = static_cast<char>(text.size());
  return std::string("\x28\xb5\x2f\xfd\x20", 5) + size + static_cast<char>(text.size() << 3 | 1) +
         static_cast<char>(text.size() >> 5) + '\0' + text;
}

/// A PNG of one pixel.
std::string pixel() {
  constexpr std::string_view kHex =
      "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63105030000000a4"
      "00"
      "6134667d720000000049454e44ae426082";
  std::string bytes;
  for (std::size_t i = 0; i < kHex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(kHex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// ---- docs/data.md

TEST(DataPage, ATokenizer) {
  const FolderOfAPage folder;
  write_tokenizer();
  const std::vector<std::string> texts{"one", "two words"};
  auto tokenizer = lockstep::Tokenizer::from_file("tokenizer.json")
                       .with_truncation({{.max_length = 128}})
                       .with_padding({{.multiple_of = 8}});
  auto batch = tokenizer.encode_batch(texts);  // on all cores, in the order of the texts
  std::string text = tokenizer.decode(batch[0].ids);
  EXPECT_EQ(batch[0].ids.size() % 8, 0U);
  EXPECT_NE(text.find("one"), std::string::npos);
}

// ---- docs/datasets.md

TEST(DatasetsPage, AFileOfRows) {
  const FolderOfAPage folder;
  std::string lines;
  for (int row = 0; row < 40; ++row)
    lines += "{\"text\": \"row " + std::to_string(row) + "\", \"label\": \"" + (row % 2 == 0 ? "a" : "b") +
             "\"}\n";
  write_bytes("reviews.jsonl", lines);
  std::int64_t used = 0;
  const auto use = [&](std::string_view, std::int64_t) { ++used; };
  auto data = lockstep::ArrowDataset::load("reviews.jsonl").class_encode_column("label");
  auto parts = data.train_test_split({.test_size = 0.1, .seed = 42, .stratify_by_column = "label"});
  parts.train.save_to_disk("reviews/train");  // Python: datasets.load_from_disk("reviews/train")

  auto text = parts.train.column<std::string_view>("text");
  auto label = parts.train.column<std::int64_t>("label");
  for (std::int64_t row = 0; row < text.size(); ++row) use(text[row], label[row]);
  EXPECT_EQ(used, 36);
}

TEST(DatasetsPage, Tensors) {
  const FolderOfAPage folder;
  write_bytes("tokens.jsonl", "{\"input_ids\": [1, 2], \"label\": 0}\n{\"input_ids\": [3], \"label\": 1}\n");
  lockstep::ArrowDataset::load("tokens.jsonl").save_to_disk("tokens");
  auto data = std::make_shared<lockstep::ArrowTensorDataset>(
      lockstep::ArrowDataset::load("tokens"),
      lockstep::ArrowTensorOptions{.columns = {"input_ids", "label"}, .padding = {{"input_ids", 0}}});
  EXPECT_EQ(data->size(), 2);
}

TEST(DatasetsPage, AStream) {
  const FolderOfAPage folder;
  for (int shard = 0; shard < 147; ++shard)
    write_bytes("web-" + digits(shard) + ".tar", tar_of({{digits(shard) + ".cls", "1"}}));
  const int rank = 1, world_size = 3;
  int used = 0;
  const auto decode = [](const auto& row) { return row; };
  const auto use = [&](auto&) { ++used; };
  auto stream = lockstep::IterableDataset::load("web-{000..146}.tar").shuffle(42, 10'000).map(decode);
  stream = lockstep::split_dataset_by_node(stream, rank, world_size);
  for (auto& row : stream) use(row);  // "__key__", "jpg", "cls", ...
  EXPECT_EQ(used, 49);
}

// ---- docs/loading.md

TEST(LoadingPage, ALoader) {
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    const lockstep::Batch rows{{"image", at::zeros({8, 3, 32, 32}, at::kByte)}, {"label", at::arange(8)}};
    const auto dataset = std::make_shared<lockstep::TensorDataset>(rows);
    const auto step = [](const at::Tensor& image, const at::Tensor& label) {
      EXPECT_EQ(image.sizes(), (std::vector<std::int64_t>{label.numel(), 3, 32, 32}));
    };
    const auto images = lockstep::transformed(dataset, "image",
                                              {.crop = {32, 32},
                                               .padding = 4,
                                               .flip_probability = 0.5,
                                               .mean = {0.49, 0.48, 0.45},
                                               .std = {0.25, 0.24, 0.26}});
    lockstep::DataLoader loader(images, {.batch_size = 128, .shuffle = true, .num_workers = 4});
    auto batches = accelerator.prepare(loader);  // this rank's share, on its device
    for (auto& batch : batches) step(batch["image"], batch["label"]);
  });
}

TEST(LoadingPage, AStream) {
  const FolderOfAPage folder;
  for (int shard = 0; shard < 256; ++shard)
    write_bytes("tokens-" + digits(shard) + ".jsonl.zst", zstd_of("{\"input_ids\": [1, 2]}\n"));
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    std::int64_t rows = 0;
    const auto step = [&](const at::Tensor& ids) { rows += ids.size(0); };
    const auto stream = std::make_shared<lockstep::IterableTensorDataset>(
        lockstep::IterableDataset::load("tokens-{000..255}.jsonl.zst").shuffle(42, 10'000),
        lockstep::IterableTensorOptions{.columns = {"input_ids"}});
    auto batches = accelerator.prepare(lockstep::DataLoader(stream, {.batch_size = 8, .num_workers = 4}));
    for (auto& batch : batches) step(batch["input_ids"]);
    EXPECT_EQ(rows, 256);
  });
}

TEST(LoadingPage, AFolderOfImages) {
  const FolderOfAPage folder;
  std::filesystem::create_directories("photos/train/cat");
  write_bytes("photos/train/cat/1.png", pixel());
  const auto train = std::make_shared<lockstep::ImageFolder>(
      "photos/train", lockstep::ImageFolderOptions{.random_resized_crop = {.size = {224, 224}},
                                                   .flip_probability = 0.5,
                                                   .mean = {0.485F, 0.456F, 0.406F},
                                                   .std = {0.229F, 0.224F, 0.225F}});
  lockstep::DataLoader photos(train, {.batch_size = 64, .shuffle = true, .num_workers = 4});
  for (auto& batch : photos) EXPECT_EQ(batch["image"].sizes(), (std::vector<std::int64_t>{1, 3, 224, 224}));
}

// ---- docs/map.md

TEST(MapPage, TokensOfTexts) {
  const FolderOfAPage folder;
  write_tokenizer();
  write_bytes("train.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two words\"}\n");
  using lockstep::ArrowDataset, lockstep::Columns, lockstep::distributed_context, lockstep::make_column,
      lockstep::map, lockstep::MapBatch, lockstep::Tokenizer, lockstep::Worker;
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    const auto tokens = map(
        ArrowDataset::load("train.jsonl"),
        [&](const Worker&) { return Tokenizer::from_file("tokenizer.json"); },  // once per worker
        [](const MapBatch& batch, const Tokenizer& tokenizer) -> Columns {
          std::vector<std::vector<std::int64_t>> ids;
          const auto texts = batch.column<std::string_view>("text");
          for (std::int64_t i = 0; i < batch.size(); ++i) ids.push_back(tokenizer.encode(texts[i]).ids);
          return {{"input_ids", make_column(ids)}};
        },
        {.name = "tokenize",
         .version = "1",
         .input_files = {"tokenizer.json"},
         .remove_columns = {"text"},
         .ranks = distributed_context(accelerator.world(), accelerator.process_group())});
    EXPECT_EQ(tokens.num_rows(), 2);
  });
}

// ---- docs/staging.md

int prepare_or_train(const std::function<lockstep::ArrowDataset()>& tokenized) {
  const auto tokens = tokenized();  // calls map()
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  return tokens.num_rows() > 0 ? 1 : 2;
}

TEST(StagingPage, AProgramThatIsPrepared) {
  const FolderOfAPage folder;
  write_bytes("train.jsonl", "{\"text\": \"one\"}\n");
  const auto tokenized = [] { return lockstep::ArrowDataset::load("train.jsonl"); };
  EXPECT_EQ(prepare_or_train(tokenized), 1);
  ::setenv("LOCKSTEP_PREPARE", "1", 1);
  EXPECT_EQ(prepare_or_train(tokenized), 0);
  ::unsetenv("LOCKSTEP_PREPARE");
}

}  // namespace

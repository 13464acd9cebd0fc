// Maps a file on all ranks of a job, for map_test.cpp:
//   map_probe FILE [--tokenizer FILE] [--fail-at ROW] [--pause MILLISECONDS] [--alone]
// Prints how many batches each rank has computed, and on rank 0 the result. Does not link LibTorch.
#include <atomic>
#include <iostream>
#include <optional>
#include <thread>

#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace {

using namespace lockstep;

struct Options {
  std::string tokenizer;
  std::int64_t fail_at = -1;
  std::int64_t pause = 0;
  std::int64_t shard_rows = 20;
  int num_proc = 0;
  bool alone = false;
  std::vector<std::string> files;
};

const OptionTable<Options>& option_table() {
  static const auto table =
      OptionTable<Options>("map_probe", "Maps a file by all ranks.")
          .add("tokenizer", &Options::tokenizer, "A tokenizer.json.")
          .add("fail-at", &Options::fail_at, "The row at which the function throws.")
          .add("pause", &Options::pause, "Milliseconds that a batch takes at least.")
          .add("shard-rows", &Options::shard_rows, "Rows of a part.")
          .add("num-proc", &Options::num_proc, "Workers of each process.")
          .add("alone", &Options::alone, "Each rank maps for itself.")
          .rest("FILE", &Options::files, "What is mapped: a file with a column 'text'.", true);
  return table;
}

/// Token ids; without a tokenizer, the bytes of the text.
std::vector<std::int64_t> ids_of(const std::optional<Tokenizer>& tokenizer, std::string_view text) {
  if (tokenizer) return tokenizer->encode(text).ids;
  return {text.begin(), text.end()};
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  const Options& options = parsed.options;
  const World world = World::from_environment();
  MapOptions how;
  how.name = "probe";
  how.version = "1";
  how.parameters = R"({"tokenizer": ")" + options.tokenizer + "\"}";
  how.batch_size = 10;
  how.shard_rows = options.shard_rows;
  how.num_proc = options.num_proc;
  how.progress = false;
  if (!options.alone) how.ranks = distributed_context(world);
  std::atomic<int> batches{0};
  const auto setup = [&](const Worker&) -> std::optional<Tokenizer> {
    if (options.tokenizer.empty()) return std::nullopt;
    return Tokenizer::from_file(options.tokenizer);
  };
  const auto function = [&](const MapBatch& batch, const std::optional<Tokenizer>& tokenizer) -> Columns {
    ++batches;
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause));
    std::vector<std::vector<std::int64_t>> ids;
    const auto texts = batch.column<std::string_view>("text");
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      if (batch.first_row + i == options.fail_at) throw std::runtime_error("no such word");
      ids.push_back(ids_of(tokenizer, texts[i]));
    }
    return {{"ids", make_column(ids)}};
  };
  const auto mapped = map(ArrowDataset::load(options.files.front()), setup, function, how);
  std::cout << "rank " + std::to_string(world.rank) + " computed " + std::to_string(batches) + " batches\n";
  if (preparing(process_environment())) return 0;
  std::cout << "rank " + std::to_string(world.rank) + " has " + std::to_string(mapped.num_rows()) + " rows " +
                   mapped.fingerprint() + "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("map_probe", [&] { return run(argc, argv); });
}

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"

// stream_peer PATTERN OPERATION ...: the rows of a stream as lines of JSON, for stream_compare.py.
// Operations: take=N, skip=N, batch=N, batch_drop_last=N, map, filter, shuffle=SEED,BUFFER,
// split=RANK,RANKS,STRATEGY, worker=WORKER,WORKERS; resume=N goes on from a state in another stream behind
// every N rows.

namespace {

using lockstep::IterableDataset;
using lockstep::SplitStrategy;
using lockstep::Value;

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> found;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) found.push_back(std::atoll(word.c_str()));
  return found;
}

Value::Fields doubled(const Value::Fields& row) { return {{"twice", Value(2 * Value(row)["id"].integer())}}; }

IterableDataset changed(const IterableDataset& stream, const std::string& name,
                        const std::vector<std::int64_t>& values) {
  if (name == "take") return stream.take(values.at(0));
  if (name == "skip") return stream.skip(values.at(0));
  if (name == "batch") return stream.batch(values.at(0));
  if (name == "batch_drop_last") return stream.batch(values.at(0), true);
  if (name == "map") return stream.map(doubled, {"half"});
  if (name == "filter")
    return stream.filter([](const Value::Fields& row) { return Value(row)["id"].integer() % 3 != 1; });
  if (name == "shuffle") return stream.shuffle(static_cast<std::uint64_t>(values.at(0)), values.at(1));
  if (name == "split") {
    return split_dataset_by_node(stream, static_cast<int>(values.at(0)), static_cast<int>(values.at(1)),
                                 static_cast<SplitStrategy>(values.at(2)));
  }
  throw lockstep::UsageError("there is no operation " + name);
}

struct Command {
  IterableDataset stream;
  int worker = 0;
  int workers = 1;
  std::int64_t resume = 0;
};

Command parsed(const std::vector<std::string>& words) {
  Command command{IterableDataset::load(words.at(0))};
  for (std::size_t place = 1; place < words.size(); ++place) {
    const auto name = words[place].substr(0, words[place].find('='));
    const auto values = numbers(words[place].substr(std::min(name.size() + 1, words[place].size())));
    if (name == "worker") {
      command.worker = static_cast<int>(values.at(0));
      command.workers = static_cast<int>(values.at(1));
    } else if (name == "resume") {
      command.resume = values.at(0);
    } else {
      command.stream = changed(command.stream, name, values);
    }
  }
  return command;
}

void print(const std::vector<std::string>& words) {
  auto command = parsed(words);
  auto rows = command.stream.open(command.workers, command.worker);
  for (std::int64_t count = 1; auto row = rows.next(); ++count) {
    std::cout << Value(*std::move(row)).to_json() << '\n';
    if (command.resume == 0 || count % command.resume != 0) continue;
    rows = parsed(words).stream.open(command.workers, command.worker, rows.state_dict());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    print({argv + 1, argv + argc});
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}

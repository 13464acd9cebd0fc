#include "lockstep/datasets/iterable_dataset.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "core/random.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/stream/bad_files.hpp"
#include "datasets/stream/generator_rows.hpp"
#include "datasets/stream/passes.hpp"
#include "datasets/stream/shards_pass.hpp"
#include "datasets/stream/table_rows.hpp"
#include "datasets/stream/tar_rows.hpp"
#include "datasets/table/content_hash.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using stream::Json;
using stream::PassPointer;

struct Operation {
  /// For the fingerprint.
  Json description;
  /// The rows after it, for a part with its own `count` and the `salt` of its shuffle.
  std::function<PassPointer(PassPointer source, std::int64_t count, std::uint64_t salt)> apply;
  /// Of take and skip.
  std::optional<std::int64_t> count = std::nullopt;
  /// Whether `count` is that of all ranks together.
  bool divided = false;
  /// Of shuffle, which shuffles the shards, too.
  std::optional<std::uint64_t> seed = std::nullopt;
};

/// take or skip.
Operation counting(const char* name, std::int64_t count, bool divided,
                   PassPointer (*pass)(PassPointer source, std::int64_t count)) {
  return {.description = {name, count, divided},
          .apply = [pass](PassPointer source, std::int64_t own,
                          std::uint64_t) { return pass(std::move(source), own); },
          .count = count,
          .divided = divided};
}

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw UsageError(fmt::format("IterableDataset: {} must be {} or more, but is {}.", name, least, value));
}

void check_part(const char* what, int part, int parts) {
  if (parts < 1 || part < 0 || part >= parts)
    throw UsageError(fmt::format("IterableDataset: there is no {} {} of {}.", what, part, parts));
}

/// The shards that one rank or worker reads, and the operations with its share of their counts.
struct Part {
  std::vector<std::int64_t> shards;
  std::vector<Operation> operations;

  /// Part `index` of `parts`: every parts-th shard.
  void divide(std::int64_t parts, std::int64_t index) {
    // With more parts than shards, only the first ones get a shard.
    const auto used = std::min(parts, std::ssize(shards));
    const auto share = [&](std::int64_t count) {
      return index < used ? count / used + (index < count % used ? 1 : 0) : 0;
    };
    for (auto& operation : operations) {
      if (operation.count && operation.divided) operation.count = share(*operation.count);
    }
    std::vector<std::int64_t> mine;
    for (auto offset = index; offset < std::ssize(shards); offset += parts)
      mine.push_back(shards[static_cast<std::size_t>(offset)]);
    shards = std::move(mine);
  }
};

Json parse_state(const std::string& state) {
  auto found = json_tree::parse<Json>(state, "the state of a stream");
  if (!found.is_object()) throw UsageError("the state of a stream is not an object of JSON.");
  return found;
}

void check_same_pass(const Json& saved, const Json& here) {
  for (const auto& [name, value] : here.items()) {
    if (saved.value(name, Json()) == value) continue;
    throw UsageError(fmt::format(
        "the saved position belongs to another pass of a stream: its {} is {}, here it is {}. Continue "
        "with the same files and operations and the same numbers of ranks and workers, or restart the "
        "epoch.",
        name, json_text(saved.value(name, Json())), json_text(value)));
  }
}

/// Runs `work`, which reads a state; turns JSON errors into UsageError.
template <typename Work>
void read_state(const Work& work) {
  try {
    work();
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("the state of a stream is damaged: {}.", error.what()));
  }
}

}  // namespace

/// Definition of a stream. Immutable.
struct IterableDataset::Plan {
  std::int64_t shards = 0;
  /// Names of the files, for the fingerprint; empty for a generator.
  std::vector<std::string> names;
  stream::OpenShard open;
  stream::TakeBad take_bad;
  stream::NameShard name = [](std::int64_t shard) { return fmt::format("shard {} of a generator", shard); };
  std::shared_ptr<stream::BadFiles> bad_files = std::make_shared<stream::BadFiles>();
  std::vector<Operation> operations = {};
  bool is_split = false;
  int world_size = 1;
  int rank = 0;
  SplitStrategy strategy = SplitStrategy::automatic;

  bool is_split_by_shards() const {
    return strategy == SplitStrategy::shards ||
           (strategy == SplitStrategy::automatic && shards % world_size == 0);
  }

  /// take() and skip() after a shuffle need the same rows in every epoch.
  std::int64_t shuffle_epoch(std::size_t offset, std::int64_t epoch) const {
    const auto begin = operations.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto counts_rows = [](const Operation& operation) { return operation.count.has_value(); };
    return std::any_of(begin, operations.end(), counts_rows) ? 0 : epoch;
  }

  /// The shards in the order of the epoch; the same on every rank.
  std::vector<std::int64_t> order(std::int64_t epoch) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(shards));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t offset = 0; offset < operations.size() && !operations[offset].count; ++offset) {
      const auto seed = operations[offset].seed;
      if (!seed) continue;
      RandomBits bits(mix_bits(*seed, static_cast<std::uint64_t>(shuffle_epoch(offset, epoch))));
      for (auto left = std::ssize(order); left > 1; --left)
        std::swap(order[static_cast<std::size_t>(left - 1)],
                  order[static_cast<std::size_t>(bits.below(left))]);
    }
    return order;
  }

  PassPointer pass(std::int64_t epoch, int num_workers, int worker) const {
    Part part{order(epoch), operations};
    const bool by_shards = is_split_by_shards();
    if (by_shards) part.divide(world_size, rank);
    part.divide(num_workers, worker);
    const bool is_empty = part.shards.empty();
    auto pass = stream::shards_pass(std::move(part.shards), open, take_bad, name);
    // A worker without shards has no rows, whatever the operations are.
    if (is_empty) return pass;
    for (std::size_t offset = 0; offset < operations.size(); ++offset) {
      // Ranks that each keep some of the same rows must read them in the same order.
      const auto share =
          static_cast<std::uint64_t>(by_shards ? rank : 0) << 32 | static_cast<std::uint64_t>(worker);
      const auto shuffled = static_cast<std::uint64_t>(shuffle_epoch(offset, epoch));
      const auto& operation = part.operations[offset];
      pass = operation.apply(std::move(pass), operation.count.value_or(0), mix_bits(share, shuffled));
    }
    return by_shards ? std::move(pass) : stream::step_pass(std::move(pass), world_size, rank);
  }
};

struct RowStream::State {
  PassPointer pass;
  /// The part of the state that identifies the pass, besides the position.
  Json pass_of;
};

RowStream::RowStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
RowStream::RowStream(RowStream&&) noexcept = default;
RowStream& RowStream::operator=(RowStream&&) noexcept = default;
RowStream::~RowStream() = default;

std::optional<Value::Fields> RowStream::next() { return state_->pass->next(); }

std::string RowStream::state_dict() const {
  auto state = state_->pass_of;
  state["position"] = state_->pass->state();
  return json_text(state);
}

template <typename Change>
IterableDataset IterableDataset::changed(const Change& change) const {
  auto plan = std::make_shared<Plan>(*plan_);
  change(*plan);
  IterableDataset other(std::move(plan));
  other.epoch_ = epoch_;
  return other;
}

IterableDataset IterableDataset::load(const std::filesystem::path& pattern, const StreamOptions& options) {
  return load(std::span<const std::filesystem::path>(&pattern, 1), options);
}

IterableDataset IterableDataset::load(std::span<const std::filesystem::path> patterns,
                                      const StreamOptions& options) {
  std::vector<std::filesystem::path> files;
  for (const auto& pattern : patterns) {
    const auto some = readers::matching_files(pattern);
    files.insert(files.end(), some.begin(), some.end());
  }
  if (files.empty()) throw UsageError("there is no file to stream: the list of patterns is empty.");
  auto plan = std::make_shared<Plan>();
  plan->shards = std::ssize(files);
  for (const auto& file : files) plan->names.push_back(file.filename().string());
  if (options.skip_bad) {
    plan->take_bad = [files, bad = plan->bad_files](std::int64_t shard, const std::string& reason) {
      bad->add(files[static_cast<std::size_t>(shard)], reason);
    };
  }
  plan->name = [files](std::int64_t shard) {
    return fmt::format("'{}'", files[static_cast<std::size_t>(shard)].string());
  };
  const auto first = std::make_shared<stream::FirstFile>(files.front(), options.load);
  plan->open = [files = std::move(files), options, bad = plan->bad_files, first](std::int64_t shard) {
    const auto& file = files[static_cast<std::size_t>(shard)];
    const auto format = readers::format_of(file, options.load);
    if (format == FileFormat::webdataset) return stream::tar_rows(file, options.max_sample_bytes);
    stream::TakeBadLine take_bad;
    if (options.skip_bad)
      take_bad = [file, bad](std::int64_t line, const std::string& reason) {
        bad->add_line(file, line, reason);
      };
    return stream::table_rows(file, format, options.load, take_bad, shard == 0 ? nullptr : first);
  };
  return IterableDataset(std::move(plan));
}

IterableDataset IterableDataset::from_generator(std::int64_t num_shards,
                                                const std::function<Generator(std::int64_t shard)>& open) {
  check_at_least("num_shards", num_shards, 1);
  auto plan = std::make_shared<Plan>();
  plan->shards = num_shards;
  plan->open = [open](std::int64_t shard) { return stream::generator_rows(open(shard)); };
  return IterableDataset(std::move(plan));
}

IterableDataset IterableDataset::shuffle(std::uint64_t seed, std::int64_t buffer_size) const {
  check_at_least("buffer_size", buffer_size, 1);
  const auto apply = [=](PassPointer source, std::int64_t, std::uint64_t salt) {
    return stream::shuffle_pass(std::move(source), buffer_size, mix_bits(seed, salt));
  };
  return changed([&](Plan& plan) {
    plan.operations.push_back({.description = {"shuffle", seed, buffer_size}, .apply = apply, .seed = seed});
  });
}

IterableDataset IterableDataset::take(std::int64_t count) const {
  check_at_least("the number of rows to take", count, 0);
  return changed([&](Plan& plan) {
    plan.operations.push_back(counting("take", count, !plan.is_split, stream::take_pass));
  });
}

IterableDataset IterableDataset::skip(std::int64_t count) const {
  check_at_least("the number of rows to skip", count, 0);
  return changed([&](Plan& plan) {
    plan.operations.push_back(counting("skip", count, !plan.is_split, stream::skip_pass));
  });
}

IterableDataset IterableDataset::map(MapFunction function, std::vector<std::string> remove_columns) const {
  const auto apply = [=](PassPointer source, std::int64_t, std::uint64_t) {
    return stream::map_pass(std::move(source), function, remove_columns);
  };
  return changed([&](Plan& plan) {
    plan.operations.push_back({.description = {"map", remove_columns}, .apply = apply});
  });
}

IterableDataset IterableDataset::filter(KeepFunction keep) const {
  const auto apply = [=](PassPointer source, std::int64_t, std::uint64_t) {
    return stream::filter_pass(std::move(source), keep);
  };
  return changed([&](Plan& plan) {
    plan.operations.push_back({.description = Json::array({"filter"}), .apply = apply});
  });
}

IterableDataset IterableDataset::batch(std::int64_t batch_size, bool drop_last_batch) const {
  check_at_least("batch_size", batch_size, 1);
  const auto apply = [=](PassPointer source, std::int64_t, std::uint64_t) {
    return stream::batch_pass(std::move(source), batch_size, drop_last_batch);
  };
  return changed([&](Plan& plan) {
    plan.operations.push_back({.description = {"batch", batch_size, drop_last_batch}, .apply = apply});
  });
}

std::int64_t IterableDataset::num_shards() const noexcept { return plan_->shards; }

bool IterableDataset::is_split() const noexcept { return plan_->is_split; }

void IterableDataset::set_epoch(std::int64_t epoch) {
  check_at_least("epoch", epoch, 0);
  if (epoch == epoch_) return;
  epoch_ = epoch;
  start_.clear();
  pass_.reset();
}

std::string IterableDataset::fingerprint() const {
  Json operations = Json::array();
  for (const auto& operation : plan_->operations) operations.push_back(operation.description);
  return table::content_hash(
      json_text(Json({{"shards", plan_->shards}, {"names", plan_->names}, {"operations", operations}})));
}

RowStream IterableDataset::open(int num_workers, int worker, const std::string& state) const {
  check_part("worker", worker, num_workers);
  auto made = std::make_unique<RowStream::State>();
  made->pass = plan_->pass(epoch_, num_workers, worker);
  made->pass_of = {{"stream", fingerprint()},
                   {"epoch", epoch_},
                   {"ranks", plan_->world_size},
                   {"rank", plan_->rank},
                   {"by_shards", plan_->is_split_by_shards()},
                   {"workers", num_workers},
                   {"worker", worker}};
  if (!state.empty()) {
    const auto saved = parse_state(state);
    check_same_pass(saved, made->pass_of);
    read_state([&] { made->pass->load(saved.at("position")); });
  }
  return RowStream(std::move(made));
}

std::string IterableDataset::state_dict() const {
  if (pass_) return pass_->state_dict();
  return start_.empty() ? open().state_dict() : start_;
}

void IterableDataset::load_state_dict(const std::string& state) {
  const auto saved = parse_state(state);
  auto other = *this;
  read_state([&] { other.epoch_ = saved.at("epoch").get<std::int64_t>(); });
  static_cast<void>(other.open(1, 0, state));
  epoch_ = other.epoch_;
  start_ = state;
  pass_.reset();
}

IterableDataset::Iterator IterableDataset::begin() {
  pass_ = std::make_shared<RowStream>(open(1, 0, std::exchange(start_, {})));
  return Iterator(pass_);
}

std::vector<BadFile> IterableDataset::bad_files() const { return plan_->bad_files->list(); }

IterableDataset::Iterator::Iterator(std::shared_ptr<RowStream> rows) : rows_(std::move(rows)) { ++*this; }

IterableDataset::Iterator& IterableDataset::Iterator::operator++() {
  // Frees the row first: the next one may reuse its memory, which is in the processor's caches.
  row_.reset();
  row_ = rows_->next();
  return *this;
}

IterableDataset split_dataset_by_node(const IterableDataset& dataset, int rank, int world_size,
                                      SplitStrategy strategy) {
  check_part("rank", rank, world_size);
  return dataset.changed([&](IterableDataset::Plan& plan) {
    if (plan.is_split && strategy != SplitStrategy::automatic && strategy != plan.strategy)
      throw UsageError("split_dataset_by_node: this stream is already split, in a different way.");
    if (!plan.is_split) plan.strategy = strategy;
    plan.is_split = true;
    plan.rank = world_size * plan.rank + rank;
    plan.world_size *= world_size;
    if (plan.strategy == SplitStrategy::shards && plan.shards < plan.world_size) {
      throw UsageError(
          fmt::format("split_dataset_by_node: {} shards are too few for {} ranks. Divide by rows "
                      "(SplitStrategy::examples), or make more and smaller shards.",
                      plan.shards, plan.world_size));
    }
  });
}

}  // namespace lockstep

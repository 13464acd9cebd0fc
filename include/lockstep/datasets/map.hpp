#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// Columns that a function returns: make_column(values) with a name.
using Columns = std::vector<std::pair<std::string, Column>>;

/// Consecutive rows of the data set that is mapped. Cheap: nothing is copied out of its files.
struct MapBatch {
  ArrowDataset rows;
  /// The index of the first row in the data set; the others follow (with_indices).
  std::int64_t first_row = 0;

  std::int64_t size() const { return rows.num_rows(); }
  /// As ArrowDataset::column: `batch.column<std::string_view>("text")[i]`.
  template <typename T>
  ColumnView<T> column(std::string_view name) const {
    return rows.template column<T>(name);
  }
};

/// Options of a map, and how its result is cached.
///
/// The cache key consists of all that determines the result: the source's content
/// (ArrowDataset::fingerprint), `name`, `version`, `parameters`, the content of `input_files`, `batch_size`,
/// `remove_columns`, `features` and, if given, `shard_rows`. Nothing else: not the number of workers, nor
/// devices, folders or hosts. C++ cannot inspect a function, so you change `version` when it returns other
/// results than before. Without a version, the function's type and the builds of Lockstep and of the program
/// (or library) that contains the function are part of the key: a stale result is never found, but every
/// rebuild computes again. Values that a function captures cannot be inspected: such a function needs
/// `parameters` that contain them, or a `version`.
struct MapOptions {
  /// Name of the computation, in messages and for `lockstep cache`.
  std::string name = "map";
  std::optional<std::string> version = std::nullopt;
  /// A JSON object of everything that the function's behavior depends on: R"({"max_length": 128})".
  std::string parameters = "{}";
  /// Files and folders that the function reads: a vocabulary, a model. Their content is part of the key, not
  /// their location.
  std::vector<std::filesystem::path> input_files = {};

  /// Rows per call of the function; the last batch of the data set may be smaller. Batches begin at multiples
  /// of it on every worker.
  std::int64_t batch_size = 1000;
  /// Columns to remove from the source. Those that the function returns are added afterwards.
  std::vector<std::string> remove_columns = {};
  /// Features of result columns, by name, if they differ from those of the source or of the plain types.
  /// Values are converted as by ArrowDataset::cast.
  std::optional<Features> features = std::nullopt;

  /// The ranks that share the work: distributed_context() for all ranks of the job. All must call with the
  /// same data and options.
  DistributedContext ranks = {};
  /// Workers (threads) of this process. 0: available_cpus() for a single process, otherwise 1 per rank.
  int num_proc = 0;
  /// Devices of this process's workers, assigned in turn: {"cuda:0", "cuda:1"}. Empty: the device of `ranks`.
  std::vector<std::string> devices = {};
  /// Source rows per file of the result, rounded up to whole batches. 0: a 64th of the rows, at least 1,000
  /// and at most 100,000. A shard is the unit that workers share, and what is lost when a process is killed.
  std::int64_t shard_rows = 0;

  /// The folder of the cache. Empty: default_cache_folder().
  std::filesystem::path cache_folder = {};
  /// Maximum size of that folder in bytes: the least recently used entries are removed. Not set:
  /// LOCKSTEP_CACHE_LIMIT, or no limit. 0: no limit.
  std::optional<std::uint64_t> cache_limit = std::nullopt;
  /// False: compute again even if the result is cached.
  bool load_from_cache = true;
  /// Keep the result in memory and cache nothing. For a single process.
  bool keep_in_memory = false;

  /// Whether rank 0 shows the number of finished rows, and the text before it. Empty: `name`.
  bool progress = true;
  std::string desc = {};
};

namespace mapping {

using BatchFunction = std::function<Columns(const MapBatch&)>;
using RowFunction = std::function<Value::Fields(const Row&)>;
using KeepFunction = std::function<std::vector<bool>(const MapBatch&)>;
template <class Function>
using Start = std::function<Function(const Worker&)>;

/// What the compiler knows about a function and its setup: a unique address for each, and whether the objects
/// have members, whose values no key can contain.
struct Code {
  const void* function = nullptr;
  const void* setup = nullptr;
  bool captures = false;
};

/// *Collective* over MapOptions::ranks.
ArrowDataset run_map(const ArrowDataset& dataset, const Start<BatchFunction>& start, const Code& code,
                     const MapOptions& options);
ArrowDataset run_filter(const ArrowDataset& dataset, const Start<KeepFunction>& start, const Code& code,
                        const MapOptions& options);

/// Applies a function of single rows to a batch. Its errors name the row.
Columns each_row(const MapBatch& batch, const RowFunction& function);
std::vector<bool> each_row(const MapBatch& batch, const std::function<bool(const Row&)>& function);

/// Each instantiation returns a different name, so that no linker merges two of them.
template <class Function>
const char* anchor() {
  return typeid(Function).name();
}

template <class Function>
const void* address_of(const Function& function) {
  if constexpr (std::is_pointer_v<Function>) {
    return reinterpret_cast<const void*>(function);
  } else {
    return reinterpret_cast<const void*>(&anchor<Function>);
  }
}

template <class Function>
constexpr bool holds_values = !std::is_pointer_v<Function> && !std::is_empty_v<Function>;

template <class Setup, class Function>
Code code_of(const Setup& setup, const Function& function) {
  return {.function = address_of(function),
          .setup = address_of(setup),
          .captures = holds_values<Setup> || holds_values<Function>};
}

/// For functions without options.
template <class Function>
constexpr void require_no_captures() {
  static_assert(!holds_values<Function>,
                "a function with captured values needs MapOptions with `parameters` that contain them, or a "
                "`version`: no key can show them. A lambda without captures and a pointer to a function need "
                "neither.");
}

struct NoState {};

struct NoSetup {
  NoState operator()(const Worker&) const { return {}; }
};

/// Calls the function with the arguments that it accepts: the state and the worker, the worker, or neither.
template <class Function, class Input, class State>
decltype(auto) call(Function& function, const Input& input, State& state, const Worker& worker) {
  if constexpr (std::is_invocable_v<Function&, const Input&, State&, const Worker&>) {
    return function(input, state, worker);
  } else if constexpr (std::is_invocable_v<Function&, const Input&, State&>) {
    return function(input, state);
  } else if constexpr (std::is_invocable_v<Function&, const Input&, const Worker&>) {
    return function(input, worker);
  } else {
    static_assert(std::is_invocable_v<Function&, const Input&>,
                  "expected a function of (const MapBatch& or const Row&, State&, const Worker&), of which "
                  "the last ones may be left out");
    return function(input);
  }
}

template <class Function, class Input, class State>
concept Takes = std::is_invocable_v<Function&, const Input&, State&, const Worker&> ||
    std::is_invocable_v<Function&, const Input&, State&> ||
    std::is_invocable_v<Function&, const Input&, const Worker&> ||
    std::is_invocable_v<Function&, const Input&>;

/// Combines a worker's state and its copy of the function into a function of a batch.
template <class Whole, class Each, class Setup, class Function>
Start<Whole> starter(Setup setup, Function function) {
  return [setup, function](const Worker& worker) -> Whole {
    using State = std::decay_t<decltype(setup(worker))>;
    // The state need not be copyable, but std::function must be.
    auto state = std::make_shared<State>(setup(worker));
    auto own = std::make_shared<Function>(function);
    if constexpr (Takes<Function, MapBatch, State>) {
      return [state, own, worker](const MapBatch& batch) { return call(*own, batch, *state, worker); };
    } else {
      const Each each = [state, own, worker](const Row& row) { return call(*own, row, *state, worker); };
      return [each](const MapBatch& batch) { return each_row(batch, each); };
    }
  };
}

}  // namespace mapping

/// Applies a function to all rows, and caches the result: the counterpart of Python's `datasets.Dataset.map`.
///
///     auto translated = map(
///         reviews,
///         [&](const Worker& worker) { return Translator(model_file, torch::Device(worker.device)); },
///         [](const MapBatch& batch, Translator& translator) -> Columns {
///           return {{"german", make_column(translator(batch.column<std::string_view>("text")))}};
///         },
///         {.name = "translate", .version = "2", .input_files = {model_file}, .batch_size = 12,
///          .ranks = distributed_context(world, group)});
///
/// `setup(worker)` is called once per worker, on its thread, before its first shard. What it returns (any
/// movable type) belongs to that worker, and is destroyed with it. `function` gets rows, the state and the
/// worker (the last ones may be omitted), and returns columns of equal length: `(const MapBatch&, State&,
/// const Worker&) -> Columns`, or per row `(const Row&, ...) -> Value::Fields`. Both are copied; the workers'
/// functions run concurrently. Thread-local settings of the calling thread, such as torch::NoGradGuard, do
/// not apply to them: set them in `setup`.
///
/// *The result* has the source's columns except `remove_columns`. Columns of the function replace those of
/// the same name, or are appended. A function may return another number of rows if no column of the source
/// remains; if it returns no columns, only `remove_columns` changes the data. Rows keep their order. The
/// result is the same, file by file, for any number of workers, ranks and nodes, if the function is
/// deterministic.
///
/// *Ranks.* With MapOptions::ranks all ranks of the job share the work: each claims the next shard when it is
/// ready, and each returns the whole result. This is *Collective*: all call with the same arguments. Which
/// ranks see the same cache folder is tested, not assumed; ranks that do not create their own copy. Waiting
/// uses no collective and has no time limit: every 30 s a waiting rank logs for whom it waits and the
/// progress, and a rank that dies is named within 10 s.
///
/// *Caching* under MapOptions::cache_folder: see docs/map.md. Each shard is on disk when it is finished; a
/// process that is killed loses only the shards in progress. Two jobs that need the same result at the same
/// time compute it once.
///
/// Errors: an exception of a function reaches all ranks, prefixed with the rows and the worker: as
/// UsageError, DataError or Error on its own rank, as RemoteError on the others. UsageError for inconsistent
/// columns, and for a function or a setup with captured values without `parameters` and `version`; Error for
/// a cache that cannot be written, or a disk without enough space for the rest, which is estimated after the
/// first shard. Finished shards are kept.
template <class Setup, class Function>
requires std::invocable<Setup&, const Worker&> ArrowDataset map(const ArrowDataset& dataset, Setup setup,
                                                                Function function,
                                                                const MapOptions& options) {
  const auto code = mapping::code_of(setup, function);
  return mapping::run_map(
      dataset,
      mapping::starter<mapping::BatchFunction, mapping::RowFunction>(std::move(setup), std::move(function)),
      code, options);
}

/// The same without a setup.
template <class Function>
ArrowDataset map(const ArrowDataset& dataset, Function function, const MapOptions& options) {
  return map(dataset, mapping::NoSetup(), std::move(function), options);
}

/// The same without options, for a function without captured values; others do not compile.
template <class Function>
ArrowDataset map(const ArrowDataset& dataset, Function function) {
  mapping::require_no_captures<Function>();
  return map(dataset, std::move(function), MapOptions());
}

/// The rows for which the function returns true: `(const MapBatch&, State&, const Worker&) ->
/// std::vector<bool>`, one element per row, or `(const Row&, ...) -> bool`. Otherwise like map(), except that
/// row numbers are cached, through which the result accesses the source's rows. `remove_columns` and
/// `features` must not be set.
template <class Setup, class Function>
requires std::invocable<Setup&, const Worker&> ArrowDataset filter(const ArrowDataset& dataset, Setup setup,
                                                                   Function function,
                                                                   const MapOptions& options) {
  const auto code = mapping::code_of(setup, function);
  return mapping::run_filter(dataset,
                             mapping::starter<mapping::KeepFunction, std::function<bool(const Row&)>>(
                                 std::move(setup), std::move(function)),
                             code, options);
}

/// The same without a setup.
template <class Function>
ArrowDataset filter(const ArrowDataset& dataset, Function function, const MapOptions& options) {
  return filter(dataset, mapping::NoSetup(), std::move(function), options);
}

/// The same without options, as for map().
template <class Function>
ArrowDataset filter(const ArrowDataset& dataset, Function function) {
  mapping::require_no_captures<Function>();
  return filter(dataset, std::move(function), MapOptions());
}

/// The folder in which map() stores, or would store, the result of such a call, whether or not it exists: for
/// stage(). `code` is mapping::code_of(setup, function), and needed only without a version. *Local*.
std::filesystem::path map_cache_entry(const ArrowDataset& dataset, const mapping::Code& code,
                                      const MapOptions& options);

}  // namespace lockstep

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

/// Columns that a function makes: make_column(values) under a name.
using Columns = std::vector<std::pair<std::string, Column>>;

/// Neighbouring rows of the data set that is mapped. Cheap: nothing is copied out of its files.
struct MapBatch {
  ArrowDataset rows;
  /// The number of the first of them in the data set; the others follow (with_indices).
  std::int64_t first_row = 0;

  std::int64_t size() const { return rows.num_rows(); }
  /// As ArrowDataset::column: `batch.column<std::string_view>("text")[i]`.
  template <typename T>
  ColumnView<T> column(std::string_view name) const {
    return rows.template column<T>(name);
  }
};

/// How a map is done and kept.
///
/// What decides about the result makes its key: the source's content (ArrowDataset::fingerprint), `name`,
/// `version`, `parameters`, the content of `input_files`, `batch_size`, `remove_columns`, `features` and, if
/// given, `shard_rows`. Nothing else does: neither the number of workers nor devices, folders or hosts. C++
/// cannot look into a function, so it is you who says by `version` that it gives other results than before;
/// without a version, the function's type, and the builds of the program (or library) that holds it and of
/// Lockstep count, so that nothing stale is ever found, at the price of computing anew after each rebuild.
/// Values that a function captures are seen by nobody: such a function needs `parameters` that say them, or a
/// `version`.
struct MapOptions {
  /// What the computation is called, in messages and by `lockstep cache`.
  std::string name = "map";
  std::optional<std::string> version = std::nullopt;
  /// A JSON object of all that the function's behaviour depends on: R"({"max_length": 128})".
  std::string parameters = "{}";
  /// Files and folders that the function reads: a vocabulary, a model. Their content counts, not their
  /// place.
  std::vector<std::filesystem::path> input_files = {};

  /// Rows that the function gets at once; the last ones of the data set may be fewer. Batches begin at
  /// multiples of it, whoever computes them.
  std::int64_t batch_size = 1000;
  /// Columns that the result has not. Those that the function returns are added afterwards.
  std::vector<std::string> remove_columns = {};
  /// What columns of the result mean, by name, where it is not what the source or the plain types say.
  std::optional<Features> features = std::nullopt;

  /// Who shares the work: distributed_context() for all ranks of the job. All must call with the same data
  /// and options.
  DistributedContext ranks = {};
  /// Workers (threads) of this process. 0: available_cpus() where it is alone, else 1 on each rank.
  int num_proc = 0;
  /// Devices of this process's workers, dealt out in turn: {"cuda:0", "cuda:1"}. Empty: that of `ranks`.
  std::vector<std::string> devices = {};
  /// Source rows that one file of the result holds, rounded up to whole batches. 0: a 64th of the rows, at
  /// least 1,000 and at most 100,000. It is what is lost when a process is killed, and what workers share.
  std::int64_t shard_rows = 0;

  /// Where results are kept. Empty: default_cache_folder().
  std::filesystem::path cache_folder = {};
  /// The most bytes of that folder: what was not used for longest goes. Nothing: LOCKSTEP_CACHE_LIMIT, or no
  /// limit. 0: none.
  std::optional<std::uint64_t> cache_limit = std::nullopt;
  /// False: compute anew what is there.
  bool load_from_cache = true;
  /// The result stays in memory and nothing is kept. For a process that is alone.
  bool keep_in_memory = false;

  /// Whether rank 0 shows how many rows are done, and what stands in front. Empty: `name`.
  bool progress = true;
  std::string desc = {};
};

namespace mapping {

using BatchFunction = std::function<Columns(const MapBatch&)>;
using RowFunction = std::function<Value::Fields(const Row&)>;
using KeepFunction = std::function<std::vector<bool>(const MapBatch&)>;
template <class Function>
using Start = std::function<Function(const Worker&)>;

/// What the compiler knows of a function and its setup: an address for each that nothing else has, and
/// whether the objects hold values, which no key can show.
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

/// What a function of single rows makes of a batch. Its errors name the row.
Columns each_row(const MapBatch& batch, const RowFunction& function);
std::vector<bool> each_row(const MapBatch& batch, const std::function<bool(const Row&)>& function);

/// Each has its own name to return, so that no linker makes one of two.
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

/// Of functions that come without options.
template <class Function>
constexpr void require_no_captures() {
  static_assert(!holds_values<Function>,
                "a function with captured values needs MapOptions with `parameters` that say them, or with a "
                "`version`: no key can show them. A lambda without captures and a pointer to a function need "
                "neither.");
}

struct NoState {};

struct NoSetup {
  NoState operator()(const Worker&) const { return {}; }
};

/// Calls the function with as much as it takes: the state and the worker, the worker, or neither.
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

/// A worker's state, its copy of the function, and the two together as a function of a batch.
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

/// Applies a function to all rows, and keeps the result: what `datasets.Dataset.map` is in Python.
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
/// `setup(worker)` is called once for each worker, on its thread, before its first part; what it returns (any
/// movable type) is that worker's alone, and ends with it. `function` gets rows, the state and the worker
/// (the last ones may be left out), and returns columns of one length: `(const MapBatch&, State&, const
/// Worker&)
/// -> Columns`, or, row by row, `(const Row&, ...) -> Value::Fields`. Both are copied; functions of several
/// workers run at once. Settings of the calling thread, such as torch::NoGradGuard, do not reach them: set
/// them in `setup`.
///
/// *The result* has the source's columns but for `remove_columns`, with those of the function in their place
/// or behind. A function may return another number of rows when no column of the source stays; with no
/// columns at all, nothing but `remove_columns` changes. Rows keep their order. The result is the same, file
/// by file, for any number of workers, ranks and nodes, provided the function is.
///
/// *Ranks.* With MapOptions::ranks all ranks of the job share the work, part by part as they come to it, and
/// each returns the whole result. *Collective* then: all call with the same arguments. It is tried, and not
/// assumed, which of them see one cache folder; those that do not make their own copy. Waiting costs no
/// collective: there is no time limit, every 30 s a waiting rank says for whom and how far it is, and a rank
/// that dies is named within 10 s.
///
/// *Kept* under MapOptions::cache_folder: see docs/map.md. Each part is on the disk when it is done; a
/// process that is killed loses the parts it was at. Two jobs that want the same result at the same time
/// compute it once.
///
/// Errors: what a function throws reaches all ranks with the rows and the worker in front: as UsageError,
/// DataError or Error on its own rank, as RemoteError on the others. UsageError for columns that do not fit
/// together, and for a function or a setup with captured values without `parameters` and `version`; Error for
/// a cache that cannot be written, or whose disk has too little room for the rest, which is judged after the
/// first part. The finished parts stay.
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

/// The same without a state.
template <class Function>
ArrowDataset map(const ArrowDataset& dataset, Function function, const MapOptions& options) {
  return map(dataset, mapping::NoSetup(), std::move(function), options);
}

/// The same without options, for a function without captured values: the compiler refuses others.
template <class Function>
ArrowDataset map(const ArrowDataset& dataset, Function function) {
  mapping::require_no_captures<Function>();
  return map(dataset, std::move(function), MapOptions());
}

/// The rows for which the function is true: `(const MapBatch&, State&, const Worker&) -> std::vector<bool>`,
/// one for each row, or `(const Row&, ...) -> bool`. Everything else is as for map(); what is kept are row
/// numbers, and the result reaches the source's rows through them. `remove_columns` and `features` must be
/// left alone.
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

/// The same without a state.
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

/// The folder in which map() keeps, or would keep, the result of such a call, whether or not it is there:
/// for stage(). `code` is mapping::code_of(setup, function), and needed only without a version. *Local*.
std::filesystem::path map_cache_entry(const ArrowDataset& dataset, const mapping::Code& code,
                                      const MapOptions& options);

}  // namespace lockstep

#include "lockstep/datasets/map.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/available_cpus.hpp"
#include "core/parallel_for.hpp"
#include "core/prepared_list.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "datasets/distributed/cached_run.hpp"
#include "datasets/map/map_key.hpp"
#include "datasets/map/shard_builder.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using mapping::BatchFunction;
using mapping::Start;

constexpr char kRowColumn[] = "row";

/// Rethrows the current exception as the same type, with `location` before its text.
[[noreturn]] void rethrow_at(const std::string& location) {
  try {
    throw;
  } catch (const UsageError& error) {
    throw UsageError(location + error.what());
  } catch (const DataError& error) {
    throw DataError(location + error.what());
  } catch (const std::exception& error) {
    throw Error(location + error.what());
  } catch (...) {
    throw Error(location + "an exception of unknown type was thrown.");
  }
}

std::string rows_text(const MapBatch& batch) {
  if (batch.size() == 1) return fmt::format("row {}", batch.first_row);
  return fmt::format("rows {} to {}", batch.first_row, batch.first_row + batch.size() - 1);
}

void check_map_options(const ArrowDataset& dataset, const MapOptions& options) {
  const std::string who = "map '" + options.name + "': ";
  if (options.batch_size < 1)
    throw UsageError(fmt::format("{}batch_size {}: expected at least 1.", who, options.batch_size));
  if (options.num_proc < 0 || options.shard_rows < 0)
    throw UsageError(who + "num_proc and shard_rows cannot be negative.");
  if (options.keep_in_memory && !options.ranks.alone())
    throw UsageError(fmt::format("{}keep_in_memory is for a process that is alone, not for {} ranks.", who,
                                 options.ranks.size));
  for (const auto& name : options.remove_columns) {
    if (!dataset.has_column(name))
      throw UsageError(who + "remove_columns: the data set has no column '" + name + "'.");
  }
}

int threads_of(const MapOptions& options, std::size_t tasks) {
  int threads = options.num_proc;
  if (threads == 0) threads = options.ranks.alone() ? available_cpus(process_environment()) : 1;
  return std::clamp(threads, 1, static_cast<int>(std::max<std::size_t>(tasks, 1)));
}

fs::path cache_of(const MapOptions& options) {
  return options.cache_folder.empty() ? default_cache_folder(process_environment()) : options.cache_folder;
}

/// One operation on a data set: turns the columns of each batch into a part of the result.
class MapJob {
 public:
  MapJob(const ArrowDataset& dataset, const Start<BatchFunction>& start, const MapOptions& options,
         std::string operation, const mapping::Code& code)
      : dataset_(dataset), start_(start), options_(options), operation_(std::move(operation)), code_(code) {
    check_map_options(dataset, options);
    tasks_ = shard_grid(dataset.num_rows(), options.batch_size, options.shard_rows);
  }

  ArrowDataset run() const { return options_.keep_in_memory ? in_memory() : kept(); }

 private:
  std::string what() const { return operation_ + " '" + options_.name + "'"; }

  std::string location(const MapBatch& batch, const Worker& worker) const {
    return fmt::format("{}, {} (worker {} of {}): ", what(), rows_text(batch), worker.rank, worker.count);
  }

  Columns part(const MapBatch& batch, const BatchFunction& function, const Worker& worker) const {
    try {
      Columns made = function(batch);
      if (operation_ != "map") return made;
      // A column that keeps its meaning must have values of its classes.
      for (auto& [name, column] : made) {
        const bool given = options_.features && options_.features->contains(name);
        if (given || !dataset_.has_column(name)) continue;
        const auto& feature = dataset_.features()[name];
        if (feature.type() == column.type()) column = table::converted_column(column, feature, name);
      }
      made = merge_columns(batch, std::move(made), options_.remove_columns);
      for (auto& [name, column] : made) {
        if (!options_.features || !options_.features->contains(name)) continue;
        column = table::converted_column(column, (*options_.features)[name], name);
      }
      return made;
    } catch (...) {
      rethrow_at(location(batch, worker));
    }
  }

  ResultColumns result_columns() const {
    return {operation_ == "map" ? dataset_.features() : Features(), options_.features};
  }

  /// Passes the results of a shard to `take`, batch by batch, until `stop` is true.
  void compute(const ShardTask& task, const BatchFunction& function, const Worker& worker,
               const std::atomic<bool>& stop, const std::function<void(Columns)>& take) const {
    const std::int64_t end = task.first_row + task.rows;
    for (std::int64_t first = task.first_row; first < end; first += options_.batch_size) {
      if (stop) throw Error(what() + ": stopped because another worker failed.");
      const MapBatch batch{dataset_.slice(first, std::min(options_.batch_size, end - first)), first};
      Columns columns = part(batch, function, worker);
      try {
        take(std::move(columns));
      } catch (...) {
        rethrow_at(location(batch, worker));
      }
    }
  }

  BatchFunction begin(const Worker& worker) const {
    try {
      return start_(worker);
    } catch (...) {
      rethrow_at(fmt::format("{}, setup of worker {} of {} ({}): ", what(), worker.rank, worker.count,
                             worker.device));
    }
  }

  ArrowDataset in_memory() const {
    std::vector<std::vector<Columns>> shards(tasks_.size());
    std::atomic<std::size_t> next{0};
    {
      const auto workers =
          make_workers(options_.ranks, threads_of(options_, tasks_.size()), options_.devices);
      ThreadPool pool(workers.size(), [&](std::size_t thread, const std::atomic<bool>& stop) {
        BatchFunction function;
        for (auto i = next++; i < tasks_.size() && !stop; i = next++) {
          if (!function) function = begin(workers[thread]);
          compute(tasks_[i], function, workers[thread], stop,
                  [&](Columns columns) { shards[i].push_back(std::move(columns)); });
        }
      });
      pool.wait();
    }
    ResultColumns result = result_columns();
    std::vector<Columns> parts;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      for (auto& columns : shards[i]) {
        add_at(result, columns, tasks_[i]);
        parts.push_back(std::move(columns));
      }
    }
    result.take_types_for_nulls();
    return result.join_parts(std::move(parts));
  }

  template <class Part>
  void add_at(ResultColumns& result, const Part& columns, const ShardTask& task) const {
    try {
      result.add(columns);
    } catch (...) {
      rethrow_at(fmt::format("{}, the results of rows {} to {}: ", what(), task.first_row,
                             task.first_row + task.rows - 1));
    }
  }

  /// Shards are computed separately: a column that has only nulls in one shard gets the type of the others,
  /// or of the source.
  void align(const std::vector<fs::path>& files, const ReplaceShard& replace) const {
    ResultColumns result = result_columns();
    std::vector<std::vector<Field>> fields;
    for (std::size_t i = 0; i < files.size(); ++i) {
      fields.push_back(readers::load_shards({files[i]}).features().fields());
      add_at(result, fields.back(), tasks_[i]);
    }
    result.take_types_for_nulls();
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (fields[i] == result.fields()) continue;
      replace(i, [&](const fs::path& file) {
        ShardBuilder builder(file, result);
        builder.add(readers::load_shards({files[i]}).columns());
        return builder.finish();
      });
    }
  }

  ArrowDataset kept() const {
    ShardedWork work;
    work.what = what();
    work.manifest = map_manifest(dataset_, operation_, code_, options_, cache_of(options_));
    work.tasks = tasks_;
    work.start = [this](const Worker& worker) -> ShardFunction {
      return [this, worker, function = begin(worker)](const ShardTask& task, const fs::path& file,
                                                      const std::atomic<bool>& stop) {
        ShardBuilder builder(file, result_columns());
        compute(task, function, worker, stop, [&](Columns columns) { builder.add(std::move(columns)); });
        return builder.finish();
      };
    };
    work.align = [this](const std::vector<fs::path>& files, const ReplaceShard& replace) {
      align(files, replace);
    };
    const auto limit =
        options_.cache_limit ? *options_.cache_limit : default_cache_limit(process_environment());
    const fs::path entry = run_cached(work, options_.ranks,
                                      {.cache = cache_of(options_),
                                       .limit = limit,
                                       .load_from_cache = options_.load_from_cache,
                                       .mark = hold_entry,
                                       .threads = threads_of(options_, tasks_.size()),
                                       .devices = options_.devices,
                                       .progress = options_.progress,
                                       .description = options_.desc.empty() ? options_.name : options_.desc});
    if (options_.ranks.rank == 0) note_prepared(process_environment(), entry);
    return readers::open_entry(entry);
  }

  const ArrowDataset& dataset_;
  const Start<BatchFunction>& start_;
  const MapOptions& options_;
  std::string operation_;
  mapping::Code code_;
  std::vector<ShardTask> tasks_;
};

Columns kept_rows(const MapBatch& batch, const std::vector<bool>& keep) {
  if (static_cast<std::int64_t>(keep.size()) != batch.size()) {
    throw UsageError(fmt::format("the function returned {} values for {} rows: expected one per row.",
                                 keep.size(), batch.size()));
  }
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) rows.push_back(batch.first_row + static_cast<std::int64_t>(i));
  }
  return {{kRowColumn, make_column(rows)}};
}

}  // namespace

namespace mapping {

ArrowDataset run_map(const ArrowDataset& dataset, const Start<BatchFunction>& start,
                     const mapping::Code& code, const MapOptions& options) {
  const MapJob mapping(dataset, start, options, "map", code);
  // Without rows, the columns that the function would return are unknown.
  if (dataset.num_rows() == 0) return dataset.remove_columns(options.remove_columns);
  return mapping.run().with_split(dataset.split());
}

ArrowDataset run_filter(const ArrowDataset& dataset, const Start<KeepFunction>& start,
                        const mapping::Code& code, const MapOptions& options) {
  if (!options.remove_columns.empty() || options.features)
    throw UsageError("filter '" + options.name + "': remove_columns and features are for map.");
  const Start<BatchFunction> numbers = [&](const Worker& worker) -> BatchFunction {
    return [keep = start(worker)](const MapBatch& batch) { return kept_rows(batch, keep(batch)); };
  };
  const MapJob mapping(dataset, numbers, options, "filter", code);
  if (dataset.num_rows() == 0) return dataset;
  return dataset.select(mapping.run().column<std::int64_t>(kRowColumn).to_vector());
}

Columns each_row(const MapBatch& batch, const RowFunction& function) {
  std::vector<Value> rows;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    try {
      rows.emplace_back(function(batch.rows.row(i)));
    } catch (...) {
      rethrow_at(fmt::format("row {}: ", batch.first_row + i));
    }
  }
  return ArrowDataset::from_rows(rows).columns();
}

std::vector<bool> each_row(const MapBatch& batch, const std::function<bool(const Row&)>& function) {
  std::vector<bool> answers;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    try {
      answers.push_back(function(batch.rows.row(i)));
    } catch (...) {
      rethrow_at(fmt::format("row {}: ", batch.first_row + i));
    }
  }
  return answers;
}

}  // namespace mapping

fs::path map_cache_entry(const ArrowDataset& dataset, const mapping::Code& code, const MapOptions& options) {
  const fs::path cache = cache_of(options);
  return cache / map_manifest(dataset, "map", code, options, cache).key;
}

}  // namespace lockstep

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "datasets/arrow/bridge.hpp"
#include "datasets/readers/packed_file.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"
#include "row_pass.hpp"

namespace lockstep::stream {
namespace {

/// Whether the files themselves say which types their columns have.
bool has_types(FileFormat format) { return format == FileFormat::parquet || format == FileFormat::arrow; }

bool has_times(const DataType& type) {
  bool found = false;
  arrow_file::with_parts(type, [&](const DataType& part) {
    found = found || part.is_temporal();
    return part;
  });
  return found;
}

/// A file of a table, one piece of rows at a time.
class TableRows final : public ShardRows {
 public:
  TableRows(const std::filesystem::path& path, FileFormat format, const LoadOptions& options,
            const TakeBadLine& take_bad, std::shared_ptr<FirstFile> first)
      : options_(options),
        unpacked_(path, take_bad && format != FileFormat::parquet),
        first_(has_types(format) ? std::move(first) : nullptr) {
    if (format == FileFormat::arrow) {
      whole_ = readers::read_arrow_file(unpacked_.path(), options.trusted);
    } else {
      file_ = readers::row_file(path, format, options, take_bad);
      source_ = file_.open(unpacked_.path(), readers::Types::of_the_beginning);
    }
  }

  std::optional<Row> next() override {
    if (!has_row()) return std::nullopt;
    Row row;
    row.reserve(piece_.columns().size());
    for (const auto& [name, column] : piece_.columns()) row.emplace_back(name, column.value(row_));
    ++row_;
    return row;
  }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    while (done < count && has_row()) {
      const auto some = std::min(count - done, piece_.num_rows() - row_);
      row_ += some;
      done += some;
    }
    return done;
  }

 private:
  bool has_row() {
    while (row_ == piece_.num_rows()) {
      auto piece = whole_ ? std::exchange(whole_, std::nullopt) : read_piece();
      if (!piece && unpacked_.damage()) std::rethrow_exception(unpacked_.damage());
      if (!piece) return false;
      piece_ = readers::with_options(*std::move(piece), options_);
      if (first_) piece_ = first_->with_its_units(std::move(piece_));
      row_ = 0;
    }
    return true;
  }

  std::optional<ArrowDataset> read_piece() {
    if (!source_) return std::nullopt;
    try {
      auto piece = piece_of(source_->next());
      if (piece) read_ += piece->num_rows();
      return piece;
    } catch (const readers::TypesTooNarrow&) {
      source_ = file_.open(unpacked_.path(), readers::Types::of_all_rows);
    }
    // Rows that were returned already do not change: skip them.
    const auto given = std::exchange(read_, 0);
    auto piece = read_piece();
    while (piece && read_ <= given) piece = read_piece();
    return piece ? piece->skip(piece->num_rows() - (read_ - given)) : piece;
  }

  std::optional<ArrowDataset> piece_of(std::vector<ArrayPointer> arrays) {
    if (arrays.empty()) return std::nullopt;
    const auto& features = source_->features();
    std::vector<std::pair<std::string, Column>> columns;
    for (std::size_t place = 0; place < arrays.size(); ++place)
      columns.emplace_back(features.items()[place].first, Column(arrays[place]));
    return ArrowDataset::from_columns(std::move(columns), features);
  }

  LoadOptions options_;
  readers::UnpackedFile unpacked_;
  std::shared_ptr<FirstFile> first_;
  readers::RowFile file_;
  std::unique_ptr<readers::RowSource> source_;
  std::optional<ArrowDataset> whole_;
  ArrowDataset piece_;
  std::int64_t row_ = 0;
  /// Rows of all pieces so far.
  std::int64_t read_ = 0;
};

class GeneratorRows final : public ShardRows {
 public:
  explicit GeneratorRows(IterableDataset::Generator generator) : generator_(std::move(generator)) {}

  std::optional<Row> next() override { return generator_(); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    while (done < count && generator_()) ++done;
    return done;
  }

 private:
  IterableDataset::Generator generator_;
};

class ShardsPass final : public RowPass {
 public:
  ShardsPass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name)
      : shards_(std::move(shards)),
        open_(std::move(open)),
        take_bad_(std::move(take_bad)),
        name_(std::move(name)) {}

  std::optional<Row> next() override {
    std::optional<Row> row;
    each_shard([&](ShardRows& rows) {
      row = rows.next();
      row_ += row ? 1 : 0;
      return row.has_value();
    });
    return row;
  }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    if (count == 0) return 0;
    each_shard([&](ShardRows& rows) {
      // If a shard may turn out to be damaged, rows are skipped one at a time: those before the damage count.
      const auto wanted = take_bad_ ? 1 : count - done;
      std::int64_t some = wanted;
      while (done < count && some == wanted) {
        some = rows.skip(wanted);
        row_ += some;
        done += some;
      }
      return done == count;
    });
    return done;
  }

  Json state() const override { return {{"shard", place_}, {"row", row_}}; }

  void load(const Json& state) override {
    place_ = static_cast<std::size_t>(number_in(state, "shard", std::ssize(shards_)));
    row_ = number_in(state, "row");
  }

 private:
  /// Calls `work` with one shard after another until it returns true.
  template <typename Work>
  void each_shard(const Work& work) {
    while (place_ < shards_.size()) {
      try {
        if (!rows_) {
          rows_ = open_(shards_[place_]);
          pass_over_read();
        }
        if (work(*rows_)) return;
      } catch (const DataError& error) {
        if (!take_bad_) throw;
        take_bad_(shards_[place_], error.what());
      }
      rows_.reset();
      row_ = 0;
      ++place_;
    }
  }

  void pass_over_read() {
    const auto found = rows_->skip(row_);
    if (found == row_) return;
    throw DataError(fmt::format(
        "{} has {} rows, but {} of it were read when the position was saved: it has become shorter since.",
        name_(shards_[place_]), found, row_));
  }

  std::vector<std::int64_t> shards_;
  OpenShard open_;
  TakeBad take_bad_;
  NameShard name_;
  std::unique_ptr<ShardRows> rows_;
  std::size_t place_ = 0;
  std::int64_t row_ = 0;
};

}  // namespace

ArrowDataset FirstFile::with_its_units(ArrowDataset piece) {
  const bool any = std::ranges::any_of(piece.features().items(),
                                       [](const auto& item) { return has_times(item.second.type()); });
  if (!any) return piece;
  std::vector<std::pair<std::string, Column>> columns;
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& [name, column] : piece.columns()) {
    const bool is_known = has_times(column.type()) && features().contains(name);
    const auto& type = is_known ? features()[name].type() : column.type();
    const bool other_unit =
        type != column.type() && arrow_file::differs_in_layout_only(*type.arrow(), *column.type().arrow());
    items.emplace_back(name, other_unit ? Feature(type) : piece.features()[name]);
    try {
      columns.emplace_back(name, other_unit ? table::converted_column(column, Feature(type), name) : column);
    } catch (const UsageError& error) {
      throw DataError(fmt::format("the column '{}' is {}, and in '{}', the first file of the stream, {}: {}",
                                  name, column.type().text(), path_.string(), type.text(), error.what()));
    }
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(items)));
}

Features FirstFile::read_features() const {
  const auto format = readers::format_of(path_, options_);
  if (!has_types(format)) return {};
  const readers::UnpackedFile unpacked(path_, false);
  if (format == FileFormat::arrow)
    return readers::with_options(readers::read_arrow_file(unpacked.path(), options_.trusted), options_)
        .features();
  return readers::row_file(path_, format, options_)
      .open(unpacked.path(), readers::Types::of_the_beginning)
      ->features();
}

const Features& FirstFile::features() {
  std::call_once(read_, [this] {
    try {
      features_ = read_features();
    } catch (const DataError&) {
      // The pass that reads this file reports it.
    }
  });
  return features_;
}

std::unique_ptr<ShardRows> table_rows(const std::filesystem::path& path, FileFormat format,
                                      const LoadOptions& options, const TakeBadLine& take_bad,
                                      std::shared_ptr<FirstFile> first) {
  return std::make_unique<TableRows>(path, format, options, take_bad, std::move(first));
}

std::unique_ptr<ShardRows> generator_rows(IterableDataset::Generator generator) {
  return std::make_unique<GeneratorRows>(std::move(generator));
}

PassPointer shards_pass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name) {
  return std::make_unique<ShardsPass>(std::move(shards), std::move(open), std::move(take_bad),
                                      std::move(name));
}

BadFiles::Known& BadFiles::known(const std::filesystem::path& file) {
  const auto found =
      std::find_if(files_.begin(), files_.end(), [&](const Known& known) { return known.file.path == file; });
  return found != files_.end() ? *found : files_.emplace_back(Known{{.path = file}});
}

void BadFiles::add(const std::filesystem::path& file, const std::string& reason) {
  const std::lock_guard guard(lock_);
  auto& entry = known(file).file;
  if (entry.is_abandoned) return;
  entry.is_abandoned = true;
  entry.reason = reason;
}

void BadFiles::add_line(const std::filesystem::path& file, std::int64_t line, const std::string& reason) {
  const std::lock_guard guard(lock_);
  auto& entry = known(file);
  if (line <= entry.last_line) return;
  entry.last_line = line;
  if (entry.file.bad_lines++ == 0 && !entry.file.is_abandoned) entry.file.reason = reason;
}

std::vector<BadFile> BadFiles::list() const {
  const std::lock_guard guard(lock_);
  std::vector<BadFile> files;
  for (const auto& entry : files_) files.push_back(entry.file);
  return files;
}

}  // namespace lockstep::stream

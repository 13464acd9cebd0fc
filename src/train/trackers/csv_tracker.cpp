#include <algorithm>
#include <charconv>

#include "lockstep/core/error.hpp"
#include "lockstep/train/trackers.hpp"
#include "train/trackers/line_file.hpp"
#include "train/trackers/tracker_of_successor.hpp"

namespace lockstep {
namespace {

constexpr const char* kFixedColumns = "step,time";
constexpr std::size_t kFixed = 2;

/// A field, quoted if necessary. Line breaks become spaces, so that each row is one line.
std::string field(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + '"';
}

/// The raw fields of a line, including quotes.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') quoted = !quoted;
    if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

class CsvTracker final : public Tracker {
 public:
  explicit CsvTracker(const std::filesystem::path& folder) : file_(folder / "metrics.csv") {
    if (file_.first_line().empty()) file_.add(kFixedColumns);
    const std::string header = file_.first_line();
    columns_ = fields_of(header);
    if (header != kFixedColumns && !header.starts_with(std::string(kFixedColumns) + ","))
      throw Error("'" + (folder / "metrics.csv").string() + "' begins with '" + header +
                  "', so it is not a table of this kind. Move it away, or log to another folder.");
  }

  void log(const LogValues& values, std::int64_t step) override {
    add_columns(values);
    std::vector<std::string> row(columns_.size());
    row[0] = std::to_string(step);
    row[1] = value_text(wall_time());
    for (const auto& [name, value] : values) row[index_of(name)] = value_text(value);
    file_.add(join_with_commas(row));
  }
  void log_text(const std::string&, const std::string&, std::int64_t) override {}
  void log_histogram(const std::string&, const Histogram&, std::int64_t) override {}
  void log_hyperparameters(const HyperParameters&, const std::vector<std::string>&) override {}
  void resume_at(std::int64_t step) override {
    file_.rewrite([step](std::string_view line) -> std::optional<std::string> {
      std::int64_t of_line = 0;
      const auto parsed = std::from_chars(line.data(), line.data() + line.size(), of_line);
      const bool later = parsed.ec == std::errc() && of_line > step;
      return later ? std::nullopt : std::optional<std::string>(line);
    });
  }

 private:
  static std::string join_with_commas(const std::vector<std::string>& fields) {
    std::string line;
    for (std::size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : ",") + fields[i];
    return line;
  }

  /// Does not search the fixed columns, even if a value has the name of one.
  std::size_t index_of(const std::string& name) const {
    const auto found = std::find(columns_.begin() + kFixed, columns_.end(), field(name));
    return static_cast<std::size_t>(found - columns_.begin());
  }

  void add_columns(const LogValues& values) {
    const std::size_t before = columns_.size();
    for (const auto& [name, value] : values) {
      if (index_of(name) == columns_.size()) columns_.push_back(field(name));
    }
    if (columns_.size() == before) return;
    const std::string empty(columns_.size() - before, ',');
    file_.rewrite([&, first = true](std::string_view line) mutable {
      const std::string longer = first ? join_with_commas(columns_) : std::string(line) + empty;
      first = false;
      return std::optional<std::string>(longer);
    });
  }

  LineFile file_;
  std::vector<std::string> columns_ = {"step", "time"};
};

}  // namespace

std::unique_ptr<Tracker> make_csv_tracker(const std::filesystem::path& folder) {
  return opened_in_time([folder] { return std::make_unique<CsvTracker>(folder); });
}

}  // namespace lockstep

#include "report/tracker_tables.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "report/lenient_json.hpp"
#include "report/number_line.hpp"
#include "report/number_words.hpp"
#include "report/text_lines.hpp"

namespace lockstep::launch {
namespace {

using nlohmann::json;

/// Counts the lines that were left out, and remembers why the first was.
class LeftOutLines {
 public:
  void add(const TextLine& line, const std::string& why) {
    if (!line.is_complete) return;
    if (count_++ == 0) first_ = fmt::format("line {}: {}", line.number, why);
  }

  void report_to(RunLog& log) const {
    if (count_ == 0) return;
    log.add_problem(fmt::format(
        "{}: {} left out; the first, {}", log.source(),
        count_ == 1 ? "1 line was" : count_words(static_cast<double>(count_)) + " lines were", first_));
  }

 private:
  std::size_t count_ = 0;
  std::string first_;
};

/// The step of the last loss: where a training that begins again continues.
double last_step_of(const RunLog& log) {
  const auto loss = log.series().find("loss");
  return loss == log.series().end() || loss->second.empty() ? 0 : loss->second.back().step;
}

void add_json_line(RunLog& log, const json& entry) {
  const auto step = number_at(entry, "step");
  if (!step || !std::isfinite(*step)) throw DataError("it has no number \"step\".");
  const double time = number_at(entry, "time").value_or(kUnknown);
  if (const auto given = entry.find("hyperparameters"); given != entry.end() && given->is_object()) {
    log.add_start({last_step_of(log), time});
    for (const auto& [name, value] : given->items()) log.add_parameter(name, plain_text(value));
    return;
  }
  for (const auto& [name, value] : entry.items()) {
    if (name == "step" || name == "time") continue;
    if (const auto number = number_in(value)) log.add(name, {*step, *number, time});
  }
}

/// The same; false if another reader has to say what the line is.
bool add_number_line(RunLog& log, std::string_view line, NumberLineReader& reader) {
  if (!reader.read(line)) return false;
  const auto values = reader.values();
  const auto step = std::ranges::find(values, "step", &NumberLineReader::Value::first);
  if (step == values.end()) return false;
  const auto time = std::ranges::find(values, "time", &NumberLineReader::Value::first);
  const double seconds = time == values.end() ? kUnknown : time->second;
  for (const auto& [name, number] : values) {
    if (name != "step" && name != "time") log.add(name, {step->second, number, seconds});
  }
  return true;
}

std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool doubled = quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"';
    if (doubled) {
      fields.back() += line[i++];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

void add_csv_row(RunLog& log, const std::vector<std::string>& columns,
                 const std::vector<std::string>& fields) {
  if (fields.size() != columns.size())
    throw DataError(fmt::format("it has {} fields, not {}.", fields.size(), columns.size()));
  const auto step = parse_number<double>(fields[0]);
  if (!step || !std::isfinite(*step)) throw DataError("its first field is not a step.");
  const double time = parse_number<double>(fields[1]).value_or(kUnknown);
  for (std::size_t i = 2; i < fields.size(); ++i) {
    if (const auto number = parse_number<double>(fields[i])) log.add(columns[i], {*step, *number, time});
  }
}

}  // namespace

RunLog read_json_lines(const std::filesystem::path& path, const std::string& source) {
  RunLog log(source);
  LeftOutLines left_out;
  NumberLineReader reader;
  read_lines(path, [&](const TextLine& line) {
    if (!line.is_cut && add_number_line(log, line.text, reader)) return;
    if (trim_blanks(line.text).empty()) return;
    if (line.is_cut) return left_out.add(line, "it is longer than 4 MiB.");
    try {
      add_json_line(log, parse_python_text(line.text, "it"));
    } catch (const DataError& error) {
      left_out.add(line, error.what());
    }
  });
  left_out.report_to(log);
  return log;
}

RunLog read_csv_table(const std::filesystem::path& path, const std::string& source) {
  RunLog log(source);
  LeftOutLines left_out;
  std::vector<std::string> columns;
  bool is_table = true;
  read_lines(path, [&](const TextLine& line) {
    if (!is_table) return;
    if (line.number == 1) {
      columns = csv_fields(line.text);
      is_table = columns.size() >= 2 && columns[0] == "step" && columns[1] == "time";
      return;
    }
    try {
      add_csv_row(log, columns, csv_fields(line.text));
    } catch (const DataError& error) {
      left_out.add(line, error.what());
    }
  });
  if (!is_table)
    log.add_problem(source + ": it is not a tracker's table: its first columns are not step and time.");
  left_out.report_to(log);
  return log;
}

}  // namespace lockstep::launch

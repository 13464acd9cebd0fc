#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/trackers.hpp"
#include "train/trackers/line_file.hpp"
#include "train/trackers/tracker_of_successor.hpp"

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

/// JSON cannot represent numbers that are not finite.
json number_or_text(double number) { return std::isfinite(number) ? json(number) : json(value_text(number)); }

json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (const double value : values) list.push_back(number_or_text(value));
  return list;
}

json to_json(const HyperParameter& parameter) {
  return std::visit([](const auto& value) { return json(value); }, parameter);
}

json to_json(const Histogram& histogram) {
  return {{"min", histogram.min},
          {"max", histogram.max},
          {"count", histogram.count},
          {"sum", histogram.sum},
          {"sum_squares", histogram.sum_squares},
          {"limits", numbers(histogram.limits)},
          {"counts", numbers(histogram.counts)}};
}

void check_name(const std::string& name) {
  if (name != "step" && name != "time") return;
  throw UsageError("a value cannot be logged as '" + name +
                   "': that is the name of a field of every line. Use another one.");
}

class JsonLinesTracker final : public Tracker {
 public:
  explicit JsonLinesTracker(const std::filesystem::path& folder) : file_(folder / "metrics.jsonl") {}

  void log(const LogValues& values, std::int64_t step) override {
    json line = begin(step);
    for (const auto& [name, value] : values) {
      check_name(name);
      line[name] = number_or_text(value);
    }
    write(line);
  }
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override {
    json line = begin(step);
    line["text"] = {{name, text}};
    write(line);
  }
  void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) override {
    json line = begin(step);
    line["histogram"] = {{name, to_json(histogram)}};
    write(line);
  }
  void log_hyperparameters(const HyperParameters& parameters, const std::vector<std::string>&) override {
    json line = begin(0);
    line["hyperparameters"] = json::object();
    for (const auto& [name, value] : parameters) line["hyperparameters"][name] = to_json(value);
    write(line);
  }
  void resume_at(std::int64_t step) override {
    file_.rewrite([step](std::string_view line) -> std::optional<std::string> {
      const json entry = json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool later = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() &&
                         entry["step"].get<std::int64_t>() > step;
      return later ? std::nullopt : std::optional<std::string>(line);
    });
  }

 private:
  static json begin(std::int64_t step) { return {{"step", step}, {"time", wall_time()}}; }
  void write(const json& line) { file_.add(json_text(line)); }

  LineFile file_;
};

}  // namespace

std::unique_ptr<Tracker> make_json_lines_tracker(const std::filesystem::path& folder) {
  return opened_in_time([folder] { return std::make_unique<JsonLinesTracker>(folder); });
}

}  // namespace lockstep

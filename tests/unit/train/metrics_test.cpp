#include "lockstep/train/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep::metrics {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

/// The lines of make_metrics.py that follow one heading.
struct Case {
  std::map<std::string, Words> data;
  std::vector<Words> scores;
};

bool is_data(const std::string& word) {
  return word == "classes" || word == "outputs" || word == "predictions" || word == "labels" ||
         word == "targets";
}

std::vector<Case> golden_cases() {
  std::ifstream file(LOCKSTEP_METRICS_GOLDENS);
  std::vector<Case> cases;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string name;
    line >> name;
    const Words words{std::istream_iterator<std::string>(line), {}};
    if (name == "bleu") break;  // texts follow
    if (name == "classes" || name == "outputs") cases.emplace_back();
    if (is_data(name)) {
      cases.back().data[name] = words;
    } else {
      cases.back().scores.push_back(words);
      cases.back().scores.back().insert(cases.back().scores.back().begin(), name);
    }
  }
  return cases;
}

Numbers integers(const Words& words) {
  Numbers numbers;
  for (const auto& word : words) numbers.push_back(std::stoll(word));
  return numbers;
}

std::vector<double> reals(const Words& words) {
  std::vector<double> numbers;
  for (const auto& word : words) numbers.push_back(std::stod(word));
  return numbers;
}

Average average_of(const std::string& name) {
  static const std::map<std::string, Average> names{{"binary", Average::binary},
                                                    {"micro", Average::micro},
                                                    {"macro", Average::macro},
                                                    {"weighted", Average::weighted}};
  return names.at(name);
}

double score_of(const Classification& scores, const Words& line) {
  if (line[0] == "accuracy") return scores.accuracy();
  if (line[0] == "matthews") return scores.matthews();
  const ScoreOptions options{.average = average_of(line[1]), .zero_division = std::stod(line[2])};
  if (line[0] == "precision") return scores.precision(options);
  return line[0] == "recall" ? scores.recall(options) : scores.f1(options);
}

double score_of(const Regression& errors, const Words& line) {
  if (line[0] == "mse") return errors.mse();
  if (line[0] == "rmse") return errors.rmse();
  return line[0] == "mae" ? errors.mae() : errors.r2();
}

void expect_close(double value, const Words& line) {
  const double expected = std::stod(line.back());
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(value)) << ::testing::PrintToString(line) << " but got " << value;
  } else {
    EXPECT_NEAR(value, expected, 1e-10 * std::max(1.0, std::abs(expected))) << ::testing::PrintToString(line);
  }
}

/// Adds the rows in two parts; the first has `cut` rows.
template <class Metric, class Value>
void update_in_parts(Metric& metric, const std::vector<Value>& predictions, const std::vector<Value>& truth,
                     std::size_t cut) {
  const std::span<const Value> answers(predictions), labels(truth);
  metric.update(answers.first(cut), labels.first(cut));
  metric.update(answers.subspan(cut), labels.subspan(cut));
}

/// No label was ever predicted, so that the classes that are left have no weight.
TEST(Classification, WeighsEquallyWhereNoClassHasAWeight) {
  Classification metric(2);
  const std::vector<std::int64_t> predictions{0}, labels{1};
  metric.update(std::span(predictions), std::span(labels));
  EXPECT_EQ(metric.precision({.average = Average::weighted, .zero_division = std::nan("")}), 0);
}

TEST(Classification, EqualsScikitLearn) {
  int scores_seen = 0;
  for (const auto& [data, scores] : golden_cases()) {
    if (!data.contains("classes")) continue;
    Classification metric(std::stoll(data.at("classes")[0]));
    update_in_parts(metric, integers(data.at("predictions")), integers(data.at("labels")), 3);
    for (const auto& line : scores) expect_close(score_of(metric, line), line);
    scores_seen += static_cast<int>(scores.size());
  }
  EXPECT_EQ(scores_seen, 11 * (2 + 27) + 4 * 9);
}

TEST(Regression, EqualsScikitLearn) {
  int cases = 0;
  for (const auto& [data, scores] : golden_cases()) {
    if (!data.contains("outputs")) continue;
    const std::int64_t outputs = std::stoll(data.at("outputs")[0]);
    Regression metric(outputs);
    update_in_parts(metric, reals(data.at("predictions")), reals(data.at("targets")),
                    static_cast<std::size_t>(outputs));
    for (const auto& line : scores) expect_close(score_of(metric, line), line);
    ++cases;
  }
  EXPECT_EQ(cases, 6);
}

TEST(Classification, LeavesOutWhatIsIgnored) {
  Classification metric(2);
  metric.update(Numbers{0, 1, 7}, Numbers{0, 0, kIgnoredLabel});
  EXPECT_EQ(metric.samples(), 2);
  EXPECT_EQ(metric.accuracy(), 0.5);
}

TEST(Classification, RefusesValuesThatAreNotClassesAndKeepsItsSums) {
  Classification metric(3);
  EXPECT_THROWS(metric.update(Numbers{0, 1}, Numbers{0, 3}), DataError, "label 3 of sample 1", "0 to 2");
  EXPECT_THROWS(metric.update(Numbers{-1}, Numbers{0}), DataError, "prediction -1 of sample 0");
  EXPECT_THROWS(metric.update(Numbers{1}, Numbers{}), UsageError, "1 predictions for 0 labels");
  EXPECT_EQ(metric.samples(), 0);
  EXPECT_THROWS(metric.f1(), UsageError, "no samples have been seen");
  metric.update(Numbers{1}, Numbers{1});
  EXPECT_THROWS(metric.f1({.average = Average::binary}), UsageError, "two classes", "3");
  EXPECT_THROWS(Classification(1), UsageError, "two classes or more", "1");
}

TEST(Regression, RefusesRowsThatAreNotWhole) {
  Regression metric(2);
  const std::vector<double> three{1, 2, 3};
  EXPECT_THROWS(metric.update(three, three), UsageError, "2 output(s)");
  EXPECT_THROWS(metric.mse(), UsageError, "no samples have been seen");
  EXPECT_THROWS(Regression(0), UsageError, "one output or more");
}

TEST(Perplexity, IsTheExponentialOfTheMeanLoss) {
  Perplexity metric;
  EXPECT_THROWS(metric.compute(), UsageError, "no samples have been seen");
  metric.update(6.0, 2);
  metric.update(0.0, 1);
  EXPECT_EQ(metric.loss(), 2);
  EXPECT_DOUBLE_EQ(metric.compute(), std::exp(2.0));
  metric.update(1e6, 1);
  EXPECT_TRUE(std::isinf(metric.compute()));
}

/// Adds the pairs of the next "bleu N" of the golden text; false if there is none.
bool read_pairs(std::ifstream& file, Bleu& metric) {
  std::string line;
  while (std::getline(file, line) && !line.starts_with("bleu ")) continue;
  if (!file) return false;
  for (int pair = std::stoi(line.substr(5)); pair > 0; --pair) {
    std::string made, wanted;
    std::getline(file, made);
    std::getline(file, wanted);
    metric.update(made, wanted);
  }
  return true;
}

TEST(Bleu, EqualsSacrebleu) {
  std::ifstream file(LOCKSTEP_METRICS_GOLDENS);
  int cases = 0;
  for (Bleu metric; read_pairs(file, metric); metric = {}, ++cases) {
    std::string word;
    double expected = -1;
    ASSERT_TRUE(file >> word >> expected) << cases;
    EXPECT_NEAR(metric.compute(), expected, 1e-10) << "case " << cases;
  }
  EXPECT_EQ(cases, 8);
  EXPECT_THROWS(Bleu().compute(), UsageError, "no samples have been seen");
}

TEST(Accuracy, CountsWhatWasCountedElsewhere) {
  Accuracy metric;
  metric.update(3, 4);
  metric.update(0, 4);
  EXPECT_EQ(metric.compute(), 3.0 / 8);
  EXPECT_THROWS(metric.update(2, 1), UsageError, "2 right answers of 1");
}

}  // namespace
}  // namespace lockstep::metrics

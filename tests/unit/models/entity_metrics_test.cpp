#include "lockstep/models/entity_metrics.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep::metrics {
namespace {

using Json = nlohmann::json;
using Tags = std::vector<std::int64_t>;

/// The lines of make_entities.py.
std::vector<Json> entity_cases() {
  std::vector<Json> cases;
  std::ifstream file(LOCKSTEP_ENTITIES_GOLDEN);
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

TEST(EntityMetrics, AreThoseOfSeqeval) {
  const auto cases = entity_cases();
  ASSERT_EQ(cases.size(), 16U);
  for (const auto& line : cases) {
    SCOPED_TRACE(line["name"]);
    Entities entities(line["tags"].get<std::vector<std::string>>());
    for (std::size_t row = 0; row < line["labels"].size(); ++row)
      entities.update(line["predictions"][row].get<Tags>(), line["labels"][row].get<Tags>());
    EXPECT_EQ(entities.values(), line["overall"].get<std::vector<double>>());
    for (std::size_t type = 0; type < entities.types().size(); ++type) {
      const auto scores = entities.of_type(type);
      const auto& types = line["types"];
      const auto found = types.find(entities.types()[type]);
      const auto expected = found == types.end() ? std::vector<double>(4) : found->get<std::vector<double>>();
      EXPECT_EQ((std::vector<double>{scores.precision, scores.recall, scores.f1,
                                     static_cast<double>(scores.number)}),
                expected)
          << entities.types()[type];
    }
  }
}

/// The texts of a case as a batch, with tokens that do not count among the others.
std::pair<at::Tensor, at::Tensor> entity_batch(const Json& line) {
  const auto rows = static_cast<std::int64_t>(line["labels"].size());
  const at::Tensor labels = at::full({rows, 24}, -100, at::kLong),
                   predictions = at::zeros({rows, 24}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto wanted = line["labels"][static_cast<std::size_t>(row)].get<Tags>();
    const auto made = line["predictions"][static_cast<std::size_t>(row)].get<Tags>();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto place = row * 24 + static_cast<std::int64_t>(2 * i);
      labels.data_ptr<std::int64_t>()[place] = wanted[i];
      predictions.data_ptr<std::int64_t>()[place] = made[i];
    }
  }
  return {predictions, labels};
}

TEST(EntityMetrics, AddUpOverBatchesAndRanks) {
  const auto line = entity_cases()[3];
  const auto tags = line["tags"].get<std::vector<std::string>>();
  const auto [predictions, labels] = entity_batch(line);
  testing::run_group(3, [&, &made = predictions, &wanted = labels](const ProcessGroup& group) {
    Entities entities(tags);
    // Rank 1 has none.
    if (group.rank() != 1) {
      const auto first = group.rank() == 0 ? 0 : 13, count = group.rank() == 0 ? 13 : 7;
      const at::Tensor scores =
          at::one_hot(made.narrow(0, first, count), static_cast<std::int64_t>(tags.size())).to(at::kFloat);
      entities.update(scores, wanted.narrow(0, first, count));
    }
    EXPECT_EQ(entities.of_all_ranks(group).values(), line["overall"].get<std::vector<double>>());
  });
}

TEST(EntityMetrics, RefuseWhatIsNoTag) {
  EXPECT_THROWS(Entities({}), UsageError, "got none");
  EXPECT_THROWS(Entities({"O", ""}), UsageError, "one is empty");
  Entities entities({"O", "B-X", "I-X"});
  EXPECT_THROWS(entities.accuracy(), UsageError, "no tokens");
  EXPECT_THROWS(entities.update(Tags{0, 3}, Tags{0, 1}), DataError, "prediction 3", "0 to 2");
  EXPECT_THROWS(entities.update(Tags{0, 1}, Tags{0, -1}), DataError, "label -1");
  EXPECT_THROWS(entities.update(Tags{0}, Tags{0, 1}), UsageError, "1 predictions for 2 labels");
  EXPECT_THROWS(entities.update(at::zeros({2, 3}, at::kLong), at::zeros({2, 4}, at::kLong)), UsageError,
                "[2, 3]", "[2, 4]");
  EXPECT_EQ(entities.overall().f1, 0);
}

}  // namespace
}  // namespace lockstep::metrics

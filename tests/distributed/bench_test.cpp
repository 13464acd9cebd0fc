#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "job.hpp"

namespace lockstep::testing {
namespace {

Finished run_bench(const Words& more) {
  Words words{"bench", "comm"};
  words.insert(words.end(), more.begin(), more.end());
  return launch::launch(words);
}

/// Three ranks: not a power of two, so that sizes must be rounded to whole parts.
TEST(Bench, MeasuresEveryCollectiveAndFindsNothingWrong) {
  const ScratchFolder folder;
  const Finished job =
      run_bench({"--nproc-per-node", "3", "--collective=all", "--max-bytes", "4K", "--step-factor", "16",
                 "--iterations", "2", "--warmup", "1", "--json", folder.file("table.json")});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(contains_all(job.out, {"# 3 ranks on 1 node(s), backend auto", "algbw   busbw  #wrong"}));
  const auto table = nlohmann::json::parse(launch::read_file(folder.file("table.json")));
  std::set<std::string> names;
  for (const auto& line : table.at("results")) {
    names.insert(line.at("collective").get<std::string>());
    EXPECT_GT(line.at("time_us").get<double>(), 0);
    if (line.at("collective") == "barrier") continue;
    EXPECT_EQ(line.at("wrong"), 0);
    const std::map<std::string, double> factors{
        {"all_reduce", 4.0 / 3}, {"all_gather", 2.0 / 3}, {"broadcast", 1}};
    const auto factor = factors.find(line.at("collective").get<std::string>());
    if (factor == factors.end()) continue;
    EXPECT_NEAR(line.at("busbw_gb_s").get<double>() / line.at("algbw_gb_s").get<double>(), factor->second,
                1e-9);
  }
  EXPECT_EQ(names.size(), 10U);
}

/// Whatever sizes are requested.
TEST(Bench, TimesABarrierOnce) {
  const ScratchFolder folder;
  const Finished job = run_bench({"--nproc-per-node=2", "--collective=barrier", "--max-bytes=4K",
                                  "--iterations=3", "--json", folder.file("table.json")});
  EXPECT_EQ(job.status, 0) << job.err;
  const auto results = nlohmann::json::parse(launch::read_file(folder.file("table.json"))).at("results");
  ASSERT_EQ(results.size(), 1U);
  const auto& line = results.at(0);
  EXPECT_GT(line.at("time_us").get<double>(), 0);
  for (const char* empty : {"size", "count", "algbw_gb_s", "busbw_gb_s"})
    EXPECT_EQ(line.at(empty), 0) << empty;
  EXPECT_TRUE(contains_all(job.out, {"none", "   0.00    0.00     n/a\n"}));
}

TEST(Bench, KnowsDtypesReductionsAndBackends) {
  for (const auto& [dtype, op] :
       {std::pair("bfloat16", "max"), std::pair("double", "avg"), std::pair("int32", "product")}) {
    const Finished job = run_bench({"--nproc-per-node=2", "--backend=gloo", "--dtype", dtype, "--op", op,
                                    "--min-bytes=1K", "--max-bytes=1K", "--iterations=1", "--warmup=0"});
    EXPECT_EQ(job.status, 0) << job.err;
    EXPECT_TRUE(contains_all(job.out, {dtype, op, "       0\n"}));
  }
}

TEST(Bench, SaysWhatIsWrong) {
  EXPECT_EQ(run_bench({"--nproc-per-node=1"}).status, 2);
  EXPECT_EQ(launch::launch({"bench"}).status, 2);
  EXPECT_TRUE(contains_all(run_bench({"--nproc-per-node=2", "--min-bytes=8X"}).err,
                           {"--min-bytes '8X'", "4K, 128M"}));
}

}  // namespace
}  // namespace lockstep::testing

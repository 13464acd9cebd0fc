#include "comm/cuda/nccl_config.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep::comm {
namespace {

NcclConfig config_of(const std::string& text) {
  return NcclConfig::from_environment({{"LOCKSTEP_NCCL_CONFIG", text}});
}

TEST(NcclConfig, SetsWhatIsNamed) {
  EXPECT_EQ(NcclConfig::from_environment({}), NcclConfig{});
  EXPECT_EQ(config_of(""), NcclConfig{});
  EXPECT_EQ(config_of("minCTAs=4,maxCTAs=16,netName=IB,CTAPolicy=0"),
            (NcclConfig{.numbers = {{"minCTAs", 4}, {"maxCTAs", 16}, {"CTAPolicy", 0}}, .net_name = "IB"}));
}

TEST(NcclConfig, RefusesWhatNcclDoesNotHave) {
  EXPECT_THROWS(config_of("min_ctas=4"), UsageError, "LOCKSTEP_NCCL_CONFIG", "'min_ctas=4'", "minCTAs");
  EXPECT_THROWS(config_of("minCTAs"), UsageError, "a number from 0");
  EXPECT_THROWS(config_of("minCTAs=4x"), UsageError, "'minCTAs=4x'");
  EXPECT_THROWS(config_of("minCTAs=-1"), UsageError, "a number from 0");
  EXPECT_THROWS(config_of("minCTAs=99999999999"), UsageError, "a number from 0");
  EXPECT_THROWS(config_of("minCTAs=4,,maxCTAs=8"), UsageError, "name=value");
  EXPECT_THROWS(config_of("maxCTAs=4,maxCTAs=4"), UsageError, "each name once");
  EXPECT_THROWS(config_of("netName="), UsageError, "the name of a network");
  EXPECT_THROWS(config_of("maxCTAs=4,minCTAs=5"), UsageError, "at most maxCTAs");
}

}  // namespace
}  // namespace lockstep::comm

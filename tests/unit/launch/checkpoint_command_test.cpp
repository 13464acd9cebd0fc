#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/shards.hpp"
#include "checkpoint/tensor_files.hpp"
#include "cli/checkpoint.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::contains_all;
using lockstep::testing::read_bytes;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_bytes;
using Values = std::map<std::string, std::vector<float>>;

/// A safetensors file of vectors.
void write_tensors(const fs::path& path, const Values& values) {
  safetensors::Header header;
  for (const auto& [name, numbers] : values)
    header.entries.push_back({name, "F32", {static_cast<std::int64_t>(numbers.size())}});
  header.metadata["format"] = "pt";
  std::string bytes = safetensors::make_header(header);
  for (const auto& entry : header.entries) {
    const auto& numbers = values.at(entry.name);
    bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  }
  write_bytes(path, bytes);
}

void write_step(const fs::path& folder, std::int64_t step, const Values& weights, const std::string& text) {
  const CheckpointInfo info{.step = step,
                            .epoch = 1,
                            .world_size = 2,
                            .metric = 0.5,
                            .lockstep_version = "0.1.0",
                            .libtorch_version = "2.11.0"};
  write_checkpoint(folder / checkpoint_name(step), info, [&](const fs::path& place) {
    write_tensors(place / "model.safetensors", weights);
    write_tensors(place / "optimizer.safetensors", {{"state.w.step", {1}}});
    write_bytes(place / "optimizer.json", text);
    return FileDigests{};
  });
}

struct Answer {
  int status;
  std::string out;
};

Answer ask(const std::vector<std::string>& words) {
  std::ostringstream out;
  const int status = checkpoint_command(words, out, out);
  return {status, out.str()};
}

TEST(CheckpointCommand, ListsWhatIsThere) {
  const TemporaryFolder folder;
  write_step(folder.path(), 10, {{"w", {1, 2}}}, "{}");
  write_step(folder.path(), 20, {{"w", {1, 2}}}, "{}");
  fs::create_directory(folder / "checkpoint-30");
  write_bytes(folder / "checkpoint-30" / kManifestFileName, "no manifest");
  const Answer answer = ask({"ls", folder.path().string()});
  EXPECT_EQ(answer.status, 0);
  EXPECT_TRUE(
      contains_all(answer.out, {"checkpoint-20  step 20  epoch 1  ranks 2", "metric 0.5",
                                "by lockstep 0.1.0, LibTorch 2.11.0", "checkpoint-30  manifest damaged"}));
  EXPECT_LT(answer.out.find("checkpoint-20"), answer.out.find("checkpoint-10"));
}

/// As an interrupted copy leaves it. A model's weights alone are none.
TEST(CheckpointCommand, NamesWhatHasNoManifest) {
  const TemporaryFolder folder;
  write_step(folder.path(), 10, {{"w", {1, 2}}}, "{}");
  write_step(folder.path(), 20, {{"w", {1, 2}}}, "{}");
  fs::remove(folder / "checkpoint-20" / kManifestFileName);
  fs::create_directory(folder / "checkpoint-30");
  write_tensors(folder / "checkpoint-30" / "model.safetensors", {{"w", {1, 2}}});
  const Answer answer = ask({"verify", folder.path().string()});
  EXPECT_EQ(answer.status, 1);
  EXPECT_TRUE(contains_all(answer.out, {"checkpoint-20: it has no manifest.json", "ok       "}))
      << answer.out;
  EXPECT_EQ(answer.out.find("checkpoint-30"), std::string::npos);
  EXPECT_TRUE(contains_all(ask({"ls", folder.path().string()}).out, {"checkpoint-20  no manifest.json"}));
}

TEST(CheckpointCommand, FindsDamage) {
  const TemporaryFolder folder;
  write_step(folder.path(), 10, {{"w", {1, 2}}}, "{}");
  write_step(folder.path(), 20, {{"w", {1, 2}}}, "{}");
  EXPECT_EQ(ask({"verify", folder.path().string()}).status, 0);
  std::string bytes = read_bytes(folder / "checkpoint-10" / "model.safetensors");
  bytes.back() ^= 1;
  write_bytes(folder / "checkpoint-10" / "model.safetensors", bytes);
  const Answer all = ask({"verify", folder.path().string()});
  EXPECT_EQ(all.status, 1);
  EXPECT_TRUE(
      contains_all(all.out, {"ok       ", "checkpoint-20\n", "damaged  ", "model.safetensors", "checksum"}));
  EXPECT_EQ(ask({"verify", (folder / "checkpoint-20").string()}).status, 0);
  EXPECT_EQ(ask({"verify", (folder / "checkpoint-10").string()}).status, 1);
}

TEST(CheckpointCommand, ComparesTensorsAndTexts) {
  const TemporaryFolder folder;
  write_step(folder.path(), 1, {{"w", {1, 2, 3}}, {"gone", {1}}, {"shape", {1}}}, "{}");
  write_step(folder.path(), 2, {{"w", {1, 2.5, 2}}, {"new", {1}}, {"shape", {1, 2}}}, "{ }");
  const std::string one = (folder / "checkpoint-1").string();
  const std::string other = (folder / "checkpoint-2").string();
  const Answer answer = ask({"diff", one, other});
  EXPECT_EQ(answer.status, 1);
  EXPECT_TRUE(contains_all(answer.out, {"w: 2 of 3 elements differ, by up to 1\n", "gone: only in " + one,
                                        "new: only in " + other, "shape: F32 [1] here, F32 [2] there",
                                        "1 of 5 tensors are equal", "optimizer.json: its text differs"}));
  const Answer same = ask({"diff", one, one});
  EXPECT_EQ(same.status, 0);
  EXPECT_EQ(same.out, "4 of 4 tensors are equal\n");
  fs::create_directory(folder / "model");
  fs::copy_file(folder / "checkpoint-1" / "model.safetensors", folder / "model" / "model.safetensors");
  const Answer model = ask({"diff", one, (folder / "model").string()});
  EXPECT_TRUE(contains_all(model.out, {"3 of 4 tensors are equal"})) << model.out;
}

TEST(CheckpointCommand, JoinsAModelInParts) {
  const TemporaryFolder folder;
  const Values all = {{"a", {1, 2}}, {"b", {3}}, {"c", {4, 5, 6}}};
  write_tensors(folder / "whole", all);
  fs::create_directory(folder / "parts");
  const auto plan = shards::plan({{"c", 12}, {"a", 8}, {"b", 4}}, 12, "model.safetensors");
  ASSERT_EQ(plan.files.size(), 2U);
  for (const auto& [file, names] : plan.files) {
    Values part;
    for (const auto& name : names) part[name] = all.at(name);
    write_tensors(folder / "parts" / file, part);
  }
  write_bytes(folder / "parts" / "model.safetensors.index.json", shards::index_text(plan));
  EXPECT_EQ(ask({"merge", (folder / "parts").string(), (folder / "joined").string()}).status, 0);
  EXPECT_EQ(read_bytes(folder / "joined"), read_bytes(folder / "whole"));
  EXPECT_EQ(ask({"diff", (folder / "parts").string(), (folder / "joined").string()}).status, 0);
  // What is saved whole later is the model, whatever an index beside it says.
  const fs::path stale = folder / "stale";
  fs::create_directory(stale);
  fs::copy_file(folder / "joined", stale / "model.safetensors");
  fs::copy_file(folder / "parts" / "model.safetensors.index.json", stale / "model.safetensors.index.json");
  EXPECT_EQ(ask({"diff", stale.string(), (folder / "joined").string()}).status, 0);
  EXPECT_THROWS(ask({"merge", stale.string(), (folder / "x").string()}), UsageError, "nothing to join");
  fs::remove(folder / "parts" / plan.files[0].first);
  EXPECT_THROWS(ask({"merge", (folder / "parts").string(), (folder / "x").string()}), DataError,
                plan.files[0].first);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(CheckpointCommand, RefusesWhatItDoesNotKnow) {
  const TemporaryFolder folder;
  EXPECT_THROWS(ask({"rm", "x"}), UsageError, "ls, verify, diff or merge");
  EXPECT_THROWS(ask({"verify", folder.path().string()}), UsageError, "manifest.json");
  EXPECT_THROWS(ask({"diff", folder.path().string(), "x"}), UsageError, "no safetensors file");
  EXPECT_EQ(ask({"--help"}).status, 0);
}

template <class Number>
std::string tensor_file(const std::string& dtype, const std::vector<Number>& values) {
  safetensors::Header header;
  header.entries.push_back({"t", dtype, {static_cast<std::int64_t>(values.size())}});
  std::string bytes = safetensors::make_header(header);
  return bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number));
}

template <class Number>
std::string difference(const std::string& dtype, const std::vector<Number>& one,
                       const std::vector<Number>& other) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", tensor_file(dtype, one));
  write_bytes(folder / "other.safetensors", tensor_file(dtype, other));
  return ask({"diff", (folder / "one.safetensors").string(), (folder / "other.safetensors").string()}).out;
}

/// Doubles have 53 bits.
TEST(CheckpointCommand, ComparesIntegersExactly) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLarge = std::int64_t{1} << 62U;
  using Signed = std::vector<std::int64_t>;
  EXPECT_TRUE(contains_all(difference<std::int64_t>("I64", Signed{kLarge, 5}, Signed{kLarge + 1, 5}),
                           {"t: 1 of 2 elements differ, by up to 1\n"}));
  EXPECT_TRUE(contains_all(difference<std::int64_t>("I64", Signed{kLeast, 0}, Signed{kMost, 7}),
                           {"2 of 2 elements differ, by up to 18446744073709551615\n"}));
  EXPECT_TRUE(contains_all(difference<std::uint64_t>("U64", {~std::uint64_t{0}}, {~std::uint64_t{0} - 3}),
                           {"by up to 3\n"}));
  EXPECT_TRUE(contains_all(difference<std::int8_t>("I8", {-128, 1}, {127, 1}), {"by up to 255\n"}));
  EXPECT_TRUE(contains_all(difference<double>("F64", {1, 2}, {1, 2.5}), {"by up to 0.5\n"}));
}

double half(std::uint16_t bits, const char* dtype) {
  char bytes[2];
  std::memcpy(bytes, &bits, sizeof bits);
  return (*element_reader(dtype))(bytes);
}

TEST(Element, ReadsHalfWideNumbers) {
  EXPECT_EQ(half(0x3c00, "F16"), 1);
  EXPECT_EQ(half(0xc000, "F16"), -2);
  EXPECT_EQ(half(0x0001, "F16"), std::ldexp(1.0, -24));
  EXPECT_EQ(half(0x7bff, "F16"), 65504);
  EXPECT_TRUE(std::isinf(half(0x7c00, "F16")));
  EXPECT_TRUE(std::isnan(half(0x7e00, "F16")));
  EXPECT_EQ(half(0x3f80, "BF16"), 1);
  EXPECT_EQ(half(0xc000, "BF16"), -2);
  EXPECT_EQ(element_reader("C64"), nullptr);
}

}  // namespace
}  // namespace lockstep::launch

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <new>

#include "lockstep/datasets/arrow_writer.hpp"
#include "lockstep/datasets/map.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

constexpr std::size_t kFile = std::size_t{128} << 20;
/// Of private memory. Mapped files do not count, and are the system's to take away.
constexpr std::size_t kLimit = std::size_t{64} << 20;

/// VmData of proc(5), in bytes: what RLIMIT_DATA counts.
std::size_t private_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == "VmData:" && status >> kib) return kib << 10;
  }
  return 0;
}

/// What `work` prints, done by a process that may take kLimit more memory than it has; or its error.
std::string run_limited(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlim_t most = private_bytes() + kLimit;
    const rlimit limit{most, most};
    std::string text = "setrlimit failed";
    if (::setrlimit(RLIMIT_DATA, &limit) == 0) {
      try {
        text = work();
      } catch (const std::exception& error) {
        text = error.what();
      }
    }
    const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(10'000, '\0');
  const auto bytes = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return status == 0 ? text : "it ended with the status " + std::to_string(status) + ": " + text;
}

/// Lines that are made by `line`, until the file has kFile bytes; how many.
int write_lines(const std::filesystem::path& path, const std::string& head,
                const std::function<std::string(int)>& line) {
  std::ofstream file(path, std::ios::binary);
  file << head;
  int rows = 0;
  for (std::size_t bytes = 0; bytes < kFile; ++rows) {
    const auto text = line(rows);
    file << text;
    bytes += text.size();
  }
  return rows;
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LOCKSTEP_CACHE", (folder_ / "cache").c_str(), 1); }
  void TearDown() override { ::unsetenv("LOCKSTEP_CACHE"); }

  std::string load_limited(const std::string& name) const {
    return run_limited([&] {
      const auto data = ArrowDataset::load(folder_ / name);
      const auto last = data.row(data.num_rows() - 1).value().to_json();
      return std::to_string(data.num_rows()) + " " + last;
    });
  }

  TemporaryFolder folder_;
};

const std::string kText(300, 'x');

TEST_F(Memory, TheLimitHolds) {
  EXPECT_EQ(run_limited([] { return std::to_string(std::string(kFile, 'x').size()); }),
            std::bad_alloc().what());
}

TEST_F(Memory, TextLargerThanItLoads) {
  const int rows =
      write_lines(folder_ / "a.txt", "", [](int row) { return std::to_string(row) + kText + "\n"; });
  EXPECT_EQ(load_limited("a.txt"),
            std::to_string(rows) + " {\"text\": \"" + std::to_string(rows - 1) + kText + "\"}");
}

TEST_F(Memory, JsonLargerThanItLoads) {
  const int rows = write_lines(folder_ / "a.jsonl", "", [](int row) {
    return "{\"id\": " + std::to_string(row) + ", \"text\": \"" + kText + "\"}\n";
  });
  EXPECT_EQ(load_limited("a.jsonl"), std::to_string(rows) + " {\"id\": " + std::to_string(rows - 1) +
                                         ", \"text\": \"" + kText + "\"}");
}

TEST_F(Memory, CommaSeparatedValuesLargerThanItLoad) {
  const int rows = write_lines(folder_ / "a.csv", "id,text\n",
                               [](int row) { return std::to_string(row) + "," + kText + "\n"; });
  EXPECT_EQ(load_limited("a.csv"), std::to_string(rows) + " {\"id\": " + std::to_string(rows - 1) +
                                       ", \"text\": \"" + kText + "\"}");
}

/// One shard: it is written while it is computed.
TEST_F(Memory, AShardLargerThanItIsMapped) {
  constexpr std::int64_t kRows = 100'000;
  const std::string text(kFile / kRows, 'y');
  const auto longer = [](const MapBatch& batch) -> Columns {
    return {{"text", make_column(std::vector<std::string>(static_cast<std::size_t>(batch.size()),
                                                          std::string(kFile / kRows, 'y')))}};
  };
  MapOptions options;
  options.version = "1";
  options.shard_rows = kRows;
  options.batch_size = 1'000;
  options.num_proc = 1;
  options.progress = false;
  const auto source = ArrowDataset::from_columns({{"n", make_column(std::vector<std::int64_t>(kRows, 1))}});
  EXPECT_EQ(run_limited([&] {
              const auto mapped = map(source, longer, options);
              return std::to_string(mapped.num_rows()) +
                     std::string(mapped.column<std::string_view>("text")[kRows - 1]);
            }),
            std::to_string(kRows) + text);
}

/// The rows of a data set of which each takes 3 MiB.
class LargeRows : public Memory {
 protected:
  static constexpr std::int64_t kRowBytes = std::int64_t{3} << 20;
  /// Together more than the 2^31 - 1 bytes of text that an array can have.
  static constexpr std::int64_t kRows = 720;

  /// One row of a file, many times.
  ArrowDataset rows() const {
    const auto file = folder_ / "row.arrow";
    const auto text = make_column<std::string>({std::string(kRowBytes, 'x')});
    ArrowDataset::from_columns({{"text", text}}).to_arrow(file);
    return ArrowDataset::load(file).select(std::vector<std::int64_t>(kRows, 0));
  }

  static std::string described(const ArrowDataset& data) {
    const auto texts = data.column<std::string_view>("text");
    const std::string text(kRowBytes, 'x');
    for (std::int64_t row = 0; row < texts.size(); ++row) {
      if (texts[row] != text) return "another text in row " + std::to_string(row);
    }
    return std::to_string(texts.size()) + " rows";
  }
};

TEST_F(LargeRows, AreMappedFlattenedAndSaved) {
  MapOptions options;
  options.version = "1";
  options.num_proc = 1;
  options.progress = false;
  const auto numbered = [](const MapBatch& batch) -> Columns {
    return {{"n", make_column(std::vector<std::int64_t>(static_cast<std::size_t>(batch.size()), 7))}};
  };
  const auto data = rows();
  EXPECT_EQ(run_limited([&] {
              const auto mapped = map(data, numbered, options).flatten_indices();
              mapped.save_to_disk(folder_ / "saved");
              const auto saved = ArrowDataset::load(folder_ / "saved");
              return described(saved) + saved.column("n").value(kRows - 1).to_json();
            }),
            "720 rows7");
}

TEST_F(LargeRows, AreWrittenAsParquet) {
  const auto data = rows().take(100);
  EXPECT_EQ(run_limited([&] {
              data.to_parquet(folder_ / "a.parquet");
              return "written";
            }),
            "written");
  EXPECT_EQ(described(ArrowDataset::load(folder_ / "a.parquet")), "100 rows");
}

TEST_F(LargeRows, AreWrittenOneByOne) {
  EXPECT_EQ(run_limited([&] {
              ArrowWriter writer(folder_ / "a.arrow");
              for (int row = 0; row < 100; ++row)
                writer.write(Value::Fields{{"text", std::string(kRowBytes, 'x')}});
              writer.finalize();
              return described(ArrowDataset::load(folder_ / "a.arrow"));
            }),
            "100 rows");
}

}  // namespace
}  // namespace lockstep

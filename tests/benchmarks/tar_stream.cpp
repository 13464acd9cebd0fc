// Streams the samples of tar files beside a plain read of the same bytes, in turns: tar_stream FOLDER
// MEMBER_BYTES ROUNDS. Writes the files into FOLDER first. Nothing is decoded.

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/datasets/iterable_dataset.hpp"
#include "net/file_descriptor.hpp"

namespace {

using lockstep::IterableDataset;
namespace fs = std::filesystem;

constexpr int kShards = 4;
constexpr std::size_t kShardBytes = std::size_t{96} << 20;

void write_member(std::ofstream& tar, const std::string& name, const std::string& data) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", data.size()));
  header.replace(148, 8, "        ");
  header[156] = '0';
  header.replace(257, 5, "ustar");
  header.replace(263, 2, "00");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  header.replace(148, 6, fmt::format("{:06o}", sum));
  header[154] = '\0';
  tar << header << data << std::string((512 - data.size() % 512) % 512, '\0');
}

std::vector<fs::path> write_shards(const fs::path& folder, std::size_t member_bytes) {
  std::vector<fs::path> files;
  for (int shard = 0; shard < kShards; ++shard) {
    files.push_back(folder / fmt::format("shard-{}.tar", shard));
    std::ofstream tar(files.back(), std::ios::binary);
    std::size_t bytes = 0;
    for (std::size_t sample = 0; bytes < kShardBytes; ++sample) {
      // Of different lengths, as photographs are.
      const auto size = member_bytes / 2 + sample * 7919 % member_bytes;
      write_member(tar, fmt::format("{:08}.jpg", sample), std::string(size, static_cast<char>(sample)));
      write_member(tar, fmt::format("{:08}.cls", sample), std::to_string(sample % 1000));
      bytes += size + 2048;
    }
    tar << std::string(1024, '\0');
  }
  return files;
}

std::uintmax_t read_plainly(const std::vector<fs::path>& files) {
  std::vector<char> piece(std::size_t{1} << 20);
  std::uintmax_t bytes = 0;
  for (const auto& path : files) {
    const lockstep::net::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    for (ssize_t count = 1; count > 0; bytes += static_cast<std::uintmax_t>(count))
      count = std::max<ssize_t>(::read(file.get(), piece.data(), piece.size()), 0);
  }
  return bytes;
}

std::uintmax_t stream(const std::vector<fs::path>& files) {
  std::uintmax_t bytes = 0;
  auto samples = IterableDataset::load(files);
  for (auto& sample : samples) bytes += sample.at(2).second.bytes().size();
  return bytes;
}

double seconds_of(const std::function<std::uintmax_t()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  if (work() == 0) std::exit(EXIT_FAILURE);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("tar_stream FOLDER MEMBER_BYTES ROUNDS\n", stderr);
    return 2;
  }
  const auto files = write_shards(argv[1], static_cast<std::size_t>(std::atoll(argv[2])));
  std::uintmax_t bytes = 0;
  for (const auto& file : files) bytes += fs::file_size(file);
  std::vector<double> plain;
  std::vector<double> streamed;
  for (int round = 0; round <= std::atoi(argv[3]); ++round) {
    const auto one = seconds_of([&] { return read_plainly(files); });
    const auto other = seconds_of([&] { return stream(files); });
    if (round == 0) continue;  // The first warms up.
    plain.push_back(one);
    streamed.push_back(other);
  }
  const auto mebibytes = static_cast<double>(bytes) / 1048576;
  fmt::print("read plainly {:.0f} MiB/s, as samples {:.0f} MiB/s: {:.0f} %\n", mebibytes / median(plain),
             mebibytes / median(streamed), 100 * median(plain) / median(streamed));
  for (const auto& file : files) fs::remove(file);
  return 0;
}

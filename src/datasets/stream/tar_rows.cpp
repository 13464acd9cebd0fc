#include "datasets/stream/tar_rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "datasets/stream/tar_reader.hpp"

namespace lockstep::stream {
namespace {

/// A member's name, split like webdataset does: the key up to the first dot of the last component, and the
/// rest in lower case.
struct SampleName {
  std::string_view key;
  std::string field;
};

/// Null for members that belong to no sample.
std::optional<SampleName> sample_name(std::string_view name) {
  const auto base = name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1;
  const auto dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  return SampleName{name.substr(0, dot), to_lower_case(name.substr(dot + 1))};
}

/// "__...__", as the name or its first folder: metadata about the whole shard.
bool is_about_shard(std::string_view name) {
  const auto first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

class TarRows final : public ShardRows {
 public:
  TarRows(const std::filesystem::path& path, std::uint64_t max_sample_bytes)
      : url_(path.string()), most_(max_sample_bytes), tar_(path) {
    advance();
  }

  std::optional<Row> next() override { return sample(true); }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    while (done < count && sample(false)) ++done;
    return done;
  }

 private:
  /// The next sample. Without `with_bytes`, its fields are null and only headers are read. An invalid sample
  /// is an error in both cases, because skipping and reading must count the same rows.
  std::optional<Row> sample(bool with_bytes) {
    if (!member_) return std::nullopt;
    const auto key = key_;
    Row row;
    // Enough for most samples. Not an initializer list, which would be copied.
    row.reserve(6);
    row.emplace_back("__key__", key);
    row.emplace_back("__url__", url_);
    std::uint64_t bytes = 0;
    for (; member_ && key_ == key; advance()) {
      constexpr std::uint64_t kHeader = 512;
      bytes += kHeader + std::min(member_->size, most_);
      if (bytes > most_) {
        tar_.fail(
            fmt::format("with it the sample '{}' takes more than {} bytes. Raise "
                        "StreamOptions::max_sample_bytes if that is right",
                        key, most_));
      }
      for (const auto& [name, value] : row) {
        if (name == field_) tar_.fail(fmt::format("the sample '{}' has a '{}' already", key, field_));
      }
      row.emplace_back(field_, with_bytes ? Value(Bytes{tar_.read()}) : Value());
    }
    return row;
  }

  /// Moves to the next member of a sample.
  void advance() {
    for (member_ = tar_.next(); member_; member_ = tar_.next()) {
      const auto name = sample_name(member_->name);
      if (!member_->is_file || !name || is_about_shard(member_->name)) continue;
      key_ = name->key;
      field_ = name->field;
      return;
    }
  }

  std::string url_;
  std::uint64_t most_;
  TarReader tar_;
  /// The next member.
  std::optional<TarMember> member_;
  std::string key_;
  std::string field_;
};

}  // namespace

std::unique_ptr<ShardRows> tar_rows(const std::filesystem::path& path, std::uint64_t max_sample_bytes) {
  return std::make_unique<TarRows>(path, max_sample_bytes);
}

}  // namespace lockstep::stream

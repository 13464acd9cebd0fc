#include "checkpoint/tensor_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/dtypes.hpp"
#include "checkpoint/shards.hpp"
#include "core/checksum.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using safetensors::Entry;
using Tensors = std::map<std::string, StoredTensor>;

constexpr const char* kEnding = ".safetensors";
/// Size of one read: a multiple of every element's size.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;

void add_file(Tensors& tensors, const fs::path& path, const std::string& prefix) {
  const auto file = std::make_shared<const safetensors::File>(path);
  for (const auto& entry : file->header().entries) tensors[prefix + entry.name] = {file, &entry};
}

std::set<fs::path> files_with(const fs::path& folder, const std::string& ending) {
  std::set<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.insert(entry.path());
  }
  return found;
}

/// A folder's tensors; those of other files than the model's have the file's name before theirs. So the model
/// of a checkpoint is compared with a model's own folder.
Tensors tensors_in(const fs::path& folder) {
  Tensors tensors;
  const auto files = files_with(folder, kEnding);
  for (const auto& file : files) {
    const std::string name = file.stem();
    const bool is_model = files.size() == 1 || name == "model" || name.starts_with("model-");
    add_file(tensors, file, is_model ? "" : name + ": ");
  }
  if (!files.empty()) return tensors;
  throw formatted<UsageError>("'{}' has no safetensors file.", folder.string());
}

/// The tensors of the files that an index names.
Tensors indexed_tensors(const fs::path& index) {
  Tensors tensors;
  std::map<std::string, std::shared_ptr<const safetensors::File>> files;
  for (const auto& [name, file_name] : shards::read_index(index)) {
    auto& file = files[file_name];
    if (!file) file = std::make_shared<const safetensors::File>(index.parent_path() / file_name);
    for (const auto& entry : file->header().entries) {
      if (entry.name == name) tensors[name] = {file, &entry};
    }
    if (tensors.contains(name)) continue;
    throw formatted<DataError>("'{}' says that '{}' is in {}, but it is not.", index.string(), name,
                               file_name);
  }
  return tensors;
}

bool is_whole(const fs::path& folder) { return fs::exists(folder / "model.safetensors"); }

fs::path index_of(const fs::path& source) {
  if (!fs::is_directory(source)) return source;
  if (is_whole(source))
    throw formatted<UsageError>("'{}' has model.safetensors: there is nothing to join.", source.string());
  const auto indexes = files_with(source, shards::kIndexEnding);
  if (!indexes.empty()) return *indexes.begin();
  throw formatted<UsageError>("'{}' has no model.safetensors.index.json: there is nothing to join.",
                              source.string());
}

std::uint64_t bytes_of(const StoredTensor& tensor) { return tensor.entry->end - tensor.entry->begin; }

std::string piece_of(const StoredTensor& tensor, std::uint64_t at) {
  std::string piece(std::min(kPiece, bytes_of(tensor) - at), '\0');
  tensor.file->read(*tensor.entry, at, piece.data(), piece.size());
  return piece;
}

template <class Number>
Number number_at(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

template <class Number>
double plain(const char* bytes) {
  return static_cast<double>(number_at<Number>(bytes));
}

/// Of integers, which a double holds up to 2^53 only.
template <class Whole>
std::uint64_t whole_distance(const char* one, const char* other) {
  const auto [least, most] = std::minmax({number_at<Whole>(one), number_at<Whole>(other)});
  return static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
}

using WholeDistance = std::uint64_t (*)(const char* one, const char* other);

/// Null if elements are not integers.
WholeDistance whole_distance_of(const std::string& dtype) {
  static const std::map<std::string, WholeDistance> kDistances{
      {"I64", whole_distance<std::int64_t>},  {"I32", whole_distance<std::int32_t>},
      {"I16", whole_distance<std::int16_t>},  {"I8", whole_distance<std::int8_t>},
      {"U64", whole_distance<std::uint64_t>}, {"U32", whole_distance<std::uint32_t>},
      {"U16", whole_distance<std::uint16_t>}, {"U8", whole_distance<std::uint8_t>},
      {"BOOL", whole_distance<std::uint8_t>}};
  const auto found = kDistances.find(dtype);
  return found == kDistances.end() ? nullptr : found->second;
}

/// The upper half of a float32.
double brain_float(const char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// IEEE 754 binary16: 1 sign bit, 5 exponent bits, 10 fraction bits.
double half_float(const char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  const int exponent = (bits >> 10U) & 31;
  const int fraction = bits & 1023;
  double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits >> 15U) != 0 ? -size : size;
}

std::string form_of(const Entry& entry) {
  return fmt::format("{} [{}]", entry.dtype, fmt::join(entry.shape, ", "));
}

/// The largest distance of two elements, where elements of the dtype are numbers.
class LargestDistance {
 public:
  explicit LargestDistance(const std::string& dtype)
      : whole_distance_(whole_distance_of(dtype)), reader_(element_reader(dtype)) {}

  void add(const char* one, const char* other) {
    if (whole_distance_ != nullptr) {
      whole_ = std::max(whole_, whole_distance_(one, other));
    } else if (reader_ != nullptr) {
      const double distance = std::abs(reader_(one) - reader_(other));
      has_nan_ = has_nan_ || std::isnan(distance);
      real_ = std::fmax(real_, distance);
    }
  }

  std::string text() const {
    if (whole_distance_ != nullptr) return fmt::format(", by up to {}", whole_);
    if (reader_ == nullptr) return "";
    return fmt::format(", by up to {:.6g}{}", real_, has_nan_ ? ", and some are NaN" : "");
  }

 private:
  WholeDistance whole_distance_;
  ElementReader reader_;
  std::uint64_t whole_ = 0;
  double real_ = 0;
  bool has_nan_ = false;
};

/// How the two differ; empty if they are equal.
std::string difference_text(const StoredTensor& one, const StoredTensor& other) {
  const std::string mine = form_of(*one.entry);
  const std::string theirs = form_of(*other.entry);
  if (mine != theirs) return mine + " here, " + theirs + " there";
  const std::uint64_t width = safetensors::find_dtype(one.entry->dtype)->bytes;
  std::uint64_t different = 0;
  LargestDistance largest(one.entry->dtype);
  for (std::uint64_t begin = 0; begin < bytes_of(one); begin += kPiece) {
    const std::string here = piece_of(one, begin);
    const std::string there = piece_of(other, begin);
    if (here == there) continue;
    for (std::uint64_t at = 0; at < here.size(); at += width) {
      if (std::memcmp(&here[at], &there[at], width) == 0) continue;
      ++different;
      largest.add(&here[at], &there[at]);
    }
  }
  if (different == 0) return "";
  return fmt::format("{} of {} elements differ{}", different, bytes_of(one) / width, largest.text());
}

/// Values to compare by name, and the file or folder that they are from.
template <class Value>
struct Side {
  const fs::path& path;
  std::map<std::string, Value> values;
};

/// Prints a line for each name that one side lacks or for which `difference` returns a text. Returns the
/// number of names, and how many of them are equal.
template <class Value, class Difference>
std::pair<std::size_t, std::size_t> print_by_name(const Side<Value>& one, const Side<Value>& other,
                                                  Difference difference, std::ostream& out) {
  auto all = one.values;
  all.insert(other.values.begin(), other.values.end());
  std::size_t equal = 0;
  for (const auto& [name, value] : all) {
    const bool mine = one.values.contains(name);
    const std::string text = !mine || !other.values.contains(name)
                                 ? "only in " + (mine ? one.path : other.path).string()
                                 : difference(one.values.at(name), other.values.at(name));
    equal += text.empty() ? 1 : 0;
    if (!text.empty()) out << fmt::format("{}: {}\n", name, text);
  }
  return {all.size(), equal};
}

bool print_tensor_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const Side<StoredTensor> mine{one, stored_tensors(one)};
  const Side<StoredTensor> theirs{other, stored_tensors(other)};
  const auto [all, equal] = print_by_name(mine, theirs, difference_text, out);
  out << fmt::format("{} of {} tensors are equal\n", equal, all);
  return equal != all;
}

bool is_checkpoint(const fs::path& path) { return fs::exists(path / kManifestFileName); }

/// Checksums of a checkpoint's files, except tensors and the manifest, which always differs.
Side<std::uint32_t> texts_in(const fs::path& folder) {
  Side<std::uint32_t> found{folder, {}};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == kManifestFileName || name.ends_with(kEnding) || !entry.is_regular_file()) continue;
    found.values[name] = digest_of(entry.path()).crc32c;
  }
  return found;
}

bool print_text_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const auto compared = [](std::uint32_t mine, std::uint32_t theirs) {
    return std::string(mine == theirs ? "" : "its text differs");
  };
  const auto [all, equal] = print_by_name(texts_in(one), texts_in(other), compared, out);
  return equal != all;
}

}  // namespace

Tensors stored_tensors(const fs::path& path) {
  if (fs::is_directory(path)) {
    const auto indexes = files_with(path, shards::kIndexEnding);
    // transformers leaves the index of earlier parts beside a model that it has saved whole.
    const bool is_in_parts = indexes.size() == 1 && !fs::exists(path / kManifestFileName) && !is_whole(path);
    return is_in_parts ? indexed_tensors(*indexes.begin()) : tensors_in(path);
  }
  if (!fs::exists(path)) throw formatted<UsageError>("'{}' does not exist.", path.string());
  Tensors tensors;
  add_file(tensors, path, "");
  return tensors;
}

void merge_model(const fs::path& source, const fs::path& target) {
  const auto tensors = indexed_tensors(index_of(source));
  safetensors::Header header;
  for (const auto& [name, tensor] : tensors) {
    header.entries.push_back(*tensor.entry);
    header.metadata = tensor.file->header().metadata;
  }
  AtomicFile file(target);
  file.write(safetensors::make_header(header));
  for (const auto& entry : header.entries) {
    const auto& tensor = tensors.at(entry.name);
    for (std::uint64_t at = 0; at < bytes_of(tensor); at += kPiece) file.write(piece_of(tensor, at));
  }
  file.commit();
}

ElementReader element_reader(const std::string& dtype) {
  static const std::map<std::string, ElementReader> kReaders{
      {"F64", plain<double>},        {"F32", plain<float>},         {"F16", half_float},
      {"BF16", brain_float},         {"I64", plain<std::int64_t>},  {"I32", plain<std::int32_t>},
      {"I16", plain<std::int16_t>},  {"I8", plain<std::int8_t>},    {"U64", plain<std::uint64_t>},
      {"U32", plain<std::uint32_t>}, {"U16", plain<std::uint16_t>}, {"U8", plain<std::uint8_t>},
      {"BOOL", plain<std::uint8_t>}};
  const auto found = kReaders.find(dtype);
  return found == kReaders.end() ? nullptr : found->second;
}

bool print_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const bool tensors = print_tensor_differences(one, other, out);
  const bool texts = is_checkpoint(one) && is_checkpoint(other) && print_text_differences(one, other, out);
  return tensors || texts;
}

}  // namespace lockstep::launch

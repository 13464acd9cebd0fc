#include "checkpoint/tensor_diff.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <set>
#include <sstream>

#include "checkpoint/element.hpp"
#include "checkpoint/tensor_files.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/checksum.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using safetensors::Entry;

/// A multiple of every element's size.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;

std::string form_of(const Entry& entry) {
  std::string text = entry.dtype + " [";
  for (std::size_t i = 0; i < entry.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
  return text + "]";
}

/// What two tensors of one form have not in common.
struct Difference {
  std::uint64_t elements = 0;
  double largest = 0;
  bool has_nan = false;

  void add(double mine, double theirs) {
    ++elements;
    const double distance = std::abs(mine - theirs);
    if (std::isnan(distance)) {
      has_nan = true;
    } else {
      largest = std::max(largest, distance);
    }
  }
};

void compare_piece(const std::string& mine, const std::string& theirs, std::uint64_t width,
                   const std::optional<ElementReader>& reader, Difference& difference) {
  for (std::uint64_t at = 0; at < mine.size(); at += width) {
    if (std::memcmp(&mine[at], &theirs[at], width) == 0) continue;
    if (reader) {
      difference.add((*reader)(&mine[at]), (*reader)(&theirs[at]));
    } else {
      ++difference.elements;
    }
  }
}

Difference compare(const StoredTensor& one, const StoredTensor& other) {
  const auto reader = element_reader(one.entry->dtype);
  const std::uint64_t width = safetensors::find_dtype(one.entry->dtype)->bytes;
  const std::uint64_t bytes = one.entry->end - one.entry->begin;
  Difference difference;
  std::string mine;
  std::string theirs;
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    mine.resize(std::min(kPiece, bytes - at));
    theirs.resize(mine.size());
    one.file->read(*one.entry, at, mine.data(), mine.size());
    other.file->read(*other.entry, at, theirs.data(), theirs.size());
    if (mine != theirs) compare_piece(mine, theirs, width, reader, difference);
  }
  return difference;
}

std::string text_of(const Difference& difference, const Entry& entry) {
  std::ostringstream text;
  text << difference.elements << " of "
       << (entry.end - entry.begin) / safetensors::find_dtype(entry.dtype)->bytes << " elements differ";
  if (element_reader(entry.dtype)) text << ", by up to " << difference.largest;
  if (difference.has_nan) text << ", and some are not a number";
  return text.str();
}

/// Nothing, or how the two differ.
std::string difference_text(const StoredTensor& one, const StoredTensor& other) {
  const std::string mine = form_of(*one.entry);
  const std::string theirs = form_of(*other.entry);
  if (mine != theirs) return mine + " here, " + theirs + " there";
  const Difference difference = compare(one, other);
  return difference.elements == 0 ? "" : text_of(difference, *one.entry);
}

bool print_tensor_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const auto mine = stored_tensors(one);
  const auto theirs = stored_tensors(other);
  std::set<std::string> names;
  for (const auto& entry : mine) names.insert(entry.first);
  for (const auto& entry : theirs) names.insert(entry.first);
  std::size_t equal = 0;
  for (const auto& name : names) {
    if (!mine.contains(name) || !theirs.contains(name)) {
      out << name << ": only in " << (mine.contains(name) ? one : other).string() << '\n';
      continue;
    }
    const std::string text = difference_text(mine.at(name), theirs.at(name));
    equal += text.empty() ? 1 : 0;
    if (!text.empty()) out << name << ": " << text << '\n';
  }
  out << equal << " of " << names.size() << " tensors are equal\n";
  return equal != names.size();
}

bool is_checkpoint(const fs::path& path) { return fs::exists(path / kManifestFileName); }

/// The files of a checkpoint that are neither tensors nor the manifest, which always differs.
std::map<std::string, std::uint32_t> texts_in(const fs::path& folder) {
  std::map<std::string, std::uint32_t> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == kManifestFileName || name.ends_with(".safetensors") || !entry.is_regular_file()) continue;
    found[name] = digest_of(entry.path()).crc32c;
  }
  return found;
}

bool print_text_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const auto mine = texts_in(one);
  const auto theirs = texts_in(other);
  bool differ = false;
  for (const auto& [name, checksum] : mine) {
    const auto found = theirs.find(name);
    if (found != theirs.end() && found->second == checksum) continue;
    out << name << (found == theirs.end() ? ": only in " + one.string() : ": its text differs") << '\n';
    differ = true;
  }
  for (const auto& entry : theirs) {
    if (mine.contains(entry.first)) continue;
    out << entry.first << ": only in " << other.string() << '\n';
    differ = true;
  }
  return differ;
}

}  // namespace

bool print_differences(const fs::path& one, const fs::path& other, std::ostream& out) {
  const bool tensors = print_tensor_differences(one, other, out);
  const bool texts = is_checkpoint(one) && is_checkpoint(other) && print_text_differences(one, other, out);
  return tensors || texts;
}

}  // namespace lockstep::launch

#pragma once

#include <filesystem>
#include <mutex>
#include <utility>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::stream {

/// Whether the files themselves say which types their columns have.
bool has_types(FileFormat format);

/// The columns of a stream's first file, which say in which unit all of its files give times: rows have
/// numbers without a unit. Read when a file with times asks for them, once. Any thread.
class FirstFile {
 public:
  FirstFile(std::filesystem::path path, LoadOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}

  /// The piece of another file, with the units of the first. Throws DataError if a time does not fit them.
  ArrowDataset with_its_units(ArrowDataset piece);

 private:
  Features read_features() const;
  const Features& features();

  std::filesystem::path path_;
  LoadOptions options_;
  std::once_flag read_;
  Features features_;
};

}  // namespace lockstep::stream

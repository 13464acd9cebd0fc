#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/arrow/mapped_file.hpp"

namespace lockstep::table {

/// Where a column's pieces are mapped from: files, and the column's name in each.
struct SourceFiles {
  struct Part {
    std::shared_ptr<const arrow_file::MappedFile> file;
    std::string column;
  };
  std::vector<Part> parts;
};

}  // namespace lockstep::table

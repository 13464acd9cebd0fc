#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/arrow/mapped_file.hpp"

namespace lockstep::table {

/// Where a column's pieces are mapped from: files, and the column's name in each.
struct Origin {
  struct Part {
    std::shared_ptr<const arrow_file::MappedFile> file;
    std::string column;
  };
  std::vector<Part> parts;
};

}  // namespace lockstep::table

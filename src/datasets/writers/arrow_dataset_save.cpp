#include "core/atomic_directory.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

void ArrowDataset::save_to_disk(const std::filesystem::path& folder, const SaveOptions& options) const {
  require_foreign(*this, folder);
  AtomicDirectory target(folder);
  write_folder(*this, target.path(), options);
  target.commit();
}

void ArrowDataset::to_arrow(const std::filesystem::path& file, std::int64_t batch_rows) const {
  write_file(*this, file, batch_rows, arrow_file::stream_writer);
}

void ArrowDataset::to_parquet(const std::filesystem::path& file, std::int64_t batch_rows) const {
  write_file(*this, file, batch_rows, arrow_file::parquet_writer);
}

}  // namespace lockstep

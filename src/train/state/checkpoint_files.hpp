#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checkpoint/checkpoint_folder.hpp"
#include "train/model_content.hpp"
#include "train/state/checkpoint_writer.hpp"
#include "train/state/sharded_state.hpp"

namespace lockstep::train {

/// The files of one checkpoint while they are written. One thread.
class CheckpointFiles {
 public:
  using WriteFile = std::function<FileDigest(const std::filesystem::path& path)>;
  /// `get`: null if no tensors are gathered while files are written.
  using WriteTensors = std::function<FileDigest(const std::filesystem::path& path, const GetTensor& get)>;

  /// `gathered` must outlive this object.
  CheckpointFiles(std::filesystem::path folder, GatheredTensors& gathered)
      : folder_(std::move(folder)), gathered_(gathered), gathers_(!gathered.empty()) {}

  /// A file that any thread may write, when write() is called.
  void add(const std::string& name, WriteFile write) { waiting_.add(name, std::move(write)); }
  void add_json(const std::string& name, nlohmann::json document);
  /// A file of tensors that the other ranks may hold in part. In that case it is written now, because all
  /// ranks gather in the same order; otherwise as add() does.
  void add_tensors(const std::string& name, WriteTensors write);

  /// Writes the files that wait, with this many threads. Returns the digests of all files.
  FileDigests write(int threads);

 private:
  std::filesystem::path folder_;
  GatheredTensors& gathered_;
  bool gathers_;
  FileDigests written_;
  ParallelFileWriter waiting_;
};

/// Accelerate's names: the first file of a kind has no number, the others count from 1.
std::string numbered_file(const std::string& stem, std::size_t index, const std::string& ending);

/// Refuses a checkpoint that was written with another number of objects of a kind than the program has:
/// that was another program. `what`: their plural. `file`: the name of each one's file. Throws DataError.
void check_file_count(const std::filesystem::path& checkpoint, const char* what, std::size_t count,
                      const std::function<std::string(std::size_t index)>& file);

/// The text of a JSON file of a checkpoint. Throws DataError.
std::string read_json_text(const std::filesystem::path& path);

}  // namespace lockstep::train

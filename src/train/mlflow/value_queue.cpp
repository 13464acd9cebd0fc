#include "train/mlflow/value_queue.hpp"

#include <fstream>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::mlflow {

ValueQueue::ValueQueue(std::filesystem::path path)
    : path_(std::move(path)), file_(path_), size_(std::filesystem::file_size(path_)) {}

void ValueQueue::add(const nlohmann::json& line) {
  const std::string text = json_text(line);
  const std::lock_guard lock(mutex_);
  file_.add(text);
  size_ += text.size() + 1;
}

std::uint64_t ValueQueue::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

std::vector<QueuedLine> ValueQueue::read(std::uint64_t begin, std::size_t most_bytes) const {
  std::vector<QueuedLine> lines;
  const std::uint64_t size = this->size();
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin));
  std::uint64_t place = begin;
  for (std::string line; place < size && place - begin < most_bytes && std::getline(file, line);) {
    const std::uint64_t end = place + line.size() + 1;
    auto content = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    lines.push_back({place, end, content.is_object() ? std::move(content) : nlohmann::json()});
    place = end;
  }
  if (begin < size && lines.empty())
    throw Error("cannot read '" + path_.string() + "', which has the values that MLflow has not got.");
  return lines;
}

}  // namespace lockstep::mlflow

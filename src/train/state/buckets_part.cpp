#include "train/state/buckets_part.hpp"

#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

constexpr const char* kBucketsFile = "buckets.json";

std::size_t count_parameters(const BucketLayout& layout) {
  std::size_t count = 0;
  for (const auto& bucket : layout) count += bucket.size();
  return count;
}

}  // namespace

void BucketsPart::gather(const GatherOptions&) {
  for (const auto& model : models_.models()) {
    auto* const ddp = model.wrapped.ddp();
    layouts_.push_back(ddp == nullptr ? BucketLayout{} : ddp->bucket_layout());
  }
}

void BucketsPart::write(CheckpointFiles& files) const { files.add_json(kBucketsFile, layouts_); }

void BucketsPart::read(const Checkpoint& checkpoint) {
  const auto path = checkpoint.path / kBucketsFile;
  try {
    layouts_ = read_json_document(path).get<std::vector<BucketLayout>>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError("'" + path.string() + "' is not the layout of gradients: " + error.what());
  }
  layouts_.resize(models_.models().size());
}

void BucketsPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  const auto layouts = accelerator.process_group().broadcast_object(nlohmann::json(layouts_), root());
  for (std::size_t i = 0; i < models_.models().size(); ++i) {
    const auto layout = layouts[i].get<BucketLayout>();
    auto* const ddp = models_.models()[i].wrapped.ddp();
    if (ddp != nullptr && count_parameters(layout) == count_parameters(ddp->bucket_layout()))
      ddp->set_bucket_layout(layout);
  }
}

}  // namespace lockstep::train

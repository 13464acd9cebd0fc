#include "models/image_processor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"
#include "models/config_file.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The largest length of an image.
constexpr std::int64_t kLongest = 1 << 16;
constexpr std::array<float, 3> kClipMean = {0.48145466F, 0.4578275F, 0.40821073F};
constexpr std::array<float, 3> kClipStd = {0.26862954F, 0.26130258F, 0.27577711F};
constexpr double kConvNextCrop = 224.0 / 256.0;

/// A class of transformers: its name without "ImageProcessor", its models, and its defaults.
struct ProcessorType {
  const char* name;
  const char* model_type;
  /// Whether a size that is a single number is that of a square.
  bool is_square;
  ImageProcessorConfig defaults;
};

const std::vector<ProcessorType>& processor_types() {
  static const std::vector<ProcessorType> types = {
      {"ViT", "vit", true, {}},
      {"DeiT", "deit", true, {.size = {256, 256}, .resample = ImageFilter::bicubic, .do_center_crop = true}},
      {"Bit",
       "dinov2",
       false,
       {.size = {},
        .shortest_edge = 224,
        .resample = ImageFilter::bicubic,
        .do_center_crop = true,
        .image_mean = kClipMean,
        .image_std = kClipStd}},
      {"ConvNext",
       "convnext",
       false,
       {.size = {}, .shortest_edge = 384, .resample = ImageFilter::bicubic, .crop_pct = kConvNextCrop}},
  };
  return types;
}

/// The numbers of Pillow's filters in the files.
constexpr std::array<std::pair<int, ImageFilter>, 5> kFilterNumbers = {{{1, ImageFilter::lanczos},
                                                                        {2, ImageFilter::bilinear},
                                                                        {3, ImageFilter::bicubic},
                                                                        {4, ImageFilter::box},
                                                                        {5, ImageFilter::hamming}}};

int number_of(ImageFilter filter) {
  return std::find_if(kFilterNumbers.begin(), kFilterNumbers.end(),
                      [&](const auto& entry) { return entry.second == filter; })
      ->first;
}

std::string without_ending(std::string text, const std::string& ending) {
  if (text.ends_with(ending)) text.resize(text.size() - ending.size());
  return text;
}

/// By the type that the file names, or by the model beside it.
const ProcessorType& type_of(const Json& json, const std::string& file, const fs::path& folder) {
  std::string field, name, model_type;
  for (const char* candidate : {"image_processor_type", "feature_extractor_type"}) {
    if (!field.empty() || !json.contains(candidate) || !json[candidate].is_string()) continue;
    field = candidate;
    name = json[candidate].get<std::string>();
    for (const char* ending : {"Fast", "Pil", "ImageProcessor", "FeatureExtractor"})
      name = without_ending(name, ending);
  }
  if (field.empty() && fs::exists(folder / kConfigFileName)) {
    const auto config = read_json_document(folder / kConfigFileName);
    model_type = config.is_object() && config.contains("model_type") && config["model_type"].is_string()
                     ? config["model_type"].get<std::string>()
                     : std::string();
  }
  std::vector<std::string> known;
  for (const auto& type : processor_types()) {
    if (field.empty() ? model_type == type.model_type : name == type.name) return type;
    known.push_back(std::string(type.name) + "ImageProcessor");
  }
  throw DataError(fmt::format("{}: the field '{}' is {}, which Lockstep does not know; it knows {}", file,
                              field.empty() ? "image_processor_type" : field,
                              field.empty() ? "missing" : json_text(json[field]), fmt::join(known, ", ")));
}

/// Reads a size: a number, a list, or an object. Sets `edge`, if that is not null, to the length of a shorter
/// side, and `size` to nothing then.
class SizeReader {
 public:
  SizeReader(const ConfigFile& file, const Json& json) : file_(file), json_(json) {}

  void read(const char* field, bool is_square, ImageSize& size, std::int64_t* edge) const {
    if (!file_.has(field)) return;
    const Json& value = json_[field];
    if (value.is_object()) return read_object(field, value, size, edge);
    ImageSize found;
    file_.pair(field, found.height, found.width);
    check_length(field, std::max(found.height, found.width));
    if (value.is_array() || is_square || edge == nullptr) {
      size = found;
      if (edge != nullptr) *edge = 0;
    } else {
      size = {};
      *edge = found.height;
    }
  }

 private:
  void read_object(const char* field, const Json& value, ImageSize& size, std::int64_t* edge) const {
    const auto length = [&](const char* name) -> std::int64_t {
      const auto found = value.find(name);
      if (found == value.end() || !found->is_number_integer() || *found < 1) return 0;
      check_length(field, found->get<std::int64_t>());
      return found->get<std::int64_t>();
    };
    if (value.size() == 2 && length("height") > 0 && length("width") > 0) {
      size = {length("height"), length("width")};
      if (edge != nullptr) *edge = 0;
    } else if (value.size() == 1 && edge != nullptr && length("shortest_edge") > 0) {
      size = {};
      *edge = length("shortest_edge");
    } else {
      file_.fail(field, edge == nullptr ? "a number or an object with 'height' and 'width'"
                                        : "a number or an object with 'height' and 'width', or with "
                                          "'shortest_edge' alone");
    }
  }

  void check_length(const char* field, std::int64_t length) const {
    if (length > kLongest) file_.fail(field, fmt::format("at most {} pixels", kLongest));
  }

  const ConfigFile& file_;
  const Json& json_;
};

/// Three numbers, or one for all channels.
void read_channels(const ConfigFile& file, const Json& json, const char* field,
                   std::array<float, 3>& values) {
  if (!file.has(field)) return;
  const Json& value = json[field];
  const Json list = value.is_array() ? value : Json::array({value, value, value});
  const bool fits = list.size() == 3 &&
                    std::all_of(list.begin(), list.end(), [](const Json& one) { return one.is_number(); });
  if (!fits) file.fail(field, "a number for each of three channels");
  for (std::size_t i = 0; i < 3; ++i) values[i] = list[i].get<float>();
}

void read_filter(const ConfigFile& file, ImageFilter& filter) {
  if (!file.has("resample")) return;
  std::int64_t number = 0;
  file.number("resample", number, 0);
  const auto* found = std::find_if(kFilterNumbers.begin(), kFilterNumbers.end(),
                                   [&](const auto& entry) { return entry.first == number; });
  if (found == kFilterNumbers.end())
    file.fail("resample",
              "1 (Lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (Hamming): others are not implemented");
  filter = found->second;
}

void check_processor(const ConfigFile& file, const ImageProcessorConfig& config) {
  for (const char* field : {"do_pad", "do_flip_channel_order"}) file.require(field, false);
  if (std::find(config.image_std.begin(), config.image_std.end(), 0.0F) != config.image_std.end())
    file.fail("image_std", "numbers other than 0");
  if (config.crop_pct > 0 && config.shortest_edge == 0)
    file.fail("size", "an object with 'shortest_edge', as ConvNeXt's processor needs it");
  if (config.crop_pct > 0 && config.do_center_crop)
    file.fail("do_center_crop", "false: ConvNeXt's processor crops by 'crop_pct'");
}

Json size_json(const ImageSize& size, std::int64_t edge) {
  if (edge > 0) return {{"shortest_edge", edge}};
  return {{"height", size.height}, {"width", size.width}};
}

/// The fields that Lockstep knows and changes.
Json processor_fields(const ImageProcessorConfig& config) {
  Json json = {
      {"do_resize", config.do_resize},          {"size", size_json(config.size, config.shortest_edge)},
      {"resample", number_of(config.resample)}, {"do_center_crop", config.do_center_crop},
      {"do_rescale", config.do_rescale},        {"rescale_factor", config.rescale_factor},
      {"do_normalize", config.do_normalize},    {"image_mean", config.image_mean},
      {"image_std", config.image_std}};
  json["crop_size"] = size_json(config.crop_size, 0);
  if (config.crop_pct > 0) json["crop_pct"] = config.crop_pct;
  return json;
}

}  // namespace

ImageProcessorConfig ImageProcessorConfig::from_file(const fs::path& folder) {
  const fs::path path = folder / kImageProcessorFileName;
  if (!fs::exists(path)) {
    throw DataError(
        fmt::format("{}: there is no such file: it says how images are prepared for the model; copy that of "
                    "the model that this one came from",
                    path.string()));
  }
  const Json json = read_json_document(path);
  const ConfigFile file(path.string(), json);
  if (!json.is_object())
    throw DataError(path.string() + " is not an image processor: expected a JSON object");
  const ProcessorType& type = type_of(json, path.string(), folder);
  ImageProcessorConfig config = type.defaults;
  bool is_square = type.is_square;
  file.flag("default_to_square", is_square);
  const SizeReader sizes(file, json);
  sizes.read("size", is_square, config.size, &config.shortest_edge);
  sizes.read("crop_size", true, config.crop_size, nullptr);
  read_filter(file, config.resample);
  file.flag("do_resize", config.do_resize);
  file.flag("do_center_crop", config.do_center_crop);
  file.flag("do_rescale", config.do_rescale);
  file.flag("do_normalize", config.do_normalize);
  file.real("rescale_factor", config.rescale_factor, 255);
  read_channels(file, json, "image_mean", config.image_mean);
  read_channels(file, json, "image_std", config.image_std);
  if (config.crop_pct > 0) {
    file.real("crop_pct", config.crop_pct, 1);
    if (config.crop_pct == 0) file.fail("crop_pct", "a number above 0");
  }
  check_processor(file, config);
  if (config.rescale_factor == 0) file.fail("rescale_factor", "a number other than 0");
  config.origin = std::make_shared<const ImageProcessorOrigin>(
      ImageProcessorOrigin{.file = json, .known = processor_fields(config)});
  return config;
}

std::string ImageProcessorConfig::to_json() const {
  if (origin == nullptr)
    throw UsageError(
        "an ImageProcessorConfig is written as the file from which it was read; this one was not");
  Json file = origin->file;
  const Json now = processor_fields(*this);
  if (origin->known.contains("crop_pct") != now.contains("crop_pct"))
    throw UsageError(
        "an ImageProcessorConfig with crop_pct is that of ConvNeXt: the file's type cannot say another one");
  for (const auto& [field, value] : now.items()) {
    const auto before = origin->known.find(field);
    if (before == origin->known.end() || *before != value) file[field] = value;
  }
  return json_text(file, 2) + "\n";
}

}  // namespace lockstep::models

#include "lockstep/data/image_folder.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "core/checksum.hpp"
#include "core/input_file.hpp"
#include "data/images/color.hpp"
#include "data/images/draw.hpp"
#include "data/images/resample.hpp"
#include "data/transforms/image_kernels.hpp"
#include "data/transforms/image_size.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using images::Decoded;
using images::Pixels;
using images::PixelView;
using images::Region;

constexpr std::int64_t kChannels = 3;
constexpr int kLargestPower = 16;
constexpr std::int64_t kLargestSide = 1 << kLargestPower;

void check_range(const char* name, const std::array<double, 2>& range, double largest) {
  if (range[0] > 0 && range[0] <= range[1] && range[1] <= largest) return;
  throw UsageError(fmt::format("ImageFolder: {} must be two growing numbers above 0, but is {} to {}.", name,
                               range[0], range[1]));
}

void check_probability(const char* name, double value) {
  if (value >= 0 && value <= 1) return;
  throw UsageError(fmt::format("ImageFolder: {} must be 0 to 1, but is {}.", name, value));
}

void check_jitter(const ColorJitterOptions& jitter) {
  const auto fits = [](double value) { return value >= 0 && std::isfinite(value); };
  if (fits(jitter.brightness) && fits(jitter.contrast) && fits(jitter.saturation) && fits(jitter.hue) &&
      jitter.hue <= 0.5)
    return;
  throw UsageError("ImageFolder: color_jitter must not be below 0, nor its hue above 0.5.");
}

void check_options(const ImageFolderOptions& options) {
  constexpr double kAnyRatio = 1e6;
  check_image_size("ImageFolder: random_resized_crop", options.random_resized_crop.size, kLargestPower);
  check_range("random_resized_crop.scale", options.random_resized_crop.scale, kAnyRatio);
  check_range("random_resized_crop.ratio", options.random_resized_crop.ratio, kAnyRatio);
  check_image_size("ImageFolder: resize_to", options.resize_to, kLargestPower);
  check_image_size("ImageFolder: center_crop", options.center_crop, kLargestPower);
  check_jitter(options.color_jitter);
  check_probability("flip_probability", options.flip_probability);
  check_probability("random_erasing.probability", options.random_erasing.probability);
  check_range("random_erasing.scale", options.random_erasing.scale, 1);
  check_range("random_erasing.ratio", options.random_erasing.ratio, kAnyRatio);
  if (options.resize < 0 || options.resize > kLargestSide)
    throw UsageError(fmt::format("ImageFolder: resize must be 0 to {} pixels.", kLargestSide));
  const bool resizes = options.resize > 0 || is_given(options.resize_to);
  if (is_given(options.random_resized_crop.size) && (resizes || is_given(options.center_crop)))
    throw UsageError("ImageFolder: random_resized_crop needs neither resize, resize_to nor center_crop.");
  if (options.resize > 0 && is_given(options.resize_to))
    throw UsageError("ImageFolder: resize and resize_to say two sizes: leave one of them out.");
  const bool numbers = options.mean.size() == options.std.size() &&
                       (options.mean.empty() || options.mean.size() == kChannels) &&
                       std::find(options.std.begin(), options.std.end(), 0.0F) == options.std.end();
  if (!numbers) throw UsageError("ImageFolder: mean and std need three numbers each, or none; no std is 0.");
  if (options.keep_bytes && !options.mean.empty())
    throw UsageError(
        "ImageFolder: bytes are not normalized: leave out mean and std, and call normalize_images().");
  if (options.max_pixels < 1) throw UsageError("ImageFolder: max_pixels must be 1 or more.");
}

constexpr std::array<std::string_view, 9> kExtensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                         ".pgm", ".tif",  ".tiff", ".webp"};

bool is_image(const fs::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
  });
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](auto ending) { return name.ends_with(ending); });
}

std::vector<std::string> folders_of(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(root, failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) names.push_back(entry->path().filename().string());
  }
  if (failure) throw DataError(fmt::format("ImageFolder: '{}': {}.", root.string(), failure.message()));
  std::sort(names.begin(), names.end());
  if (names.empty()) throw DataError(fmt::format("ImageFolder: no class folder is in '{}'.", root.string()));
  return names;
}

/// Such a link would put the images of all classes into one, many times over.
void refuse_link_upwards(const fs::path& link) {
  std::error_code failure;
  const fs::path target = fs::canonical(link, failure), parent = fs::canonical(link.parent_path(), failure);
  const auto [differ, unused] = std::mismatch(target.begin(), target.end(), parent.begin(), parent.end());
  if (failure || differ != target.end()) return;
  throw DataError(fmt::format("ImageFolder: '{}' is a link to a folder above it, '{}': remove the link.",
                              link.string(), target.string()));
}

/// Sorted like Python's sorted(os.walk(...)): by the folder's path as text, then by name.
std::vector<fs::path> images_in(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code failure;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, failure);
  for (const fs::recursive_directory_iterator end; !failure && entry != end; entry.increment(failure)) {
    std::error_code unknown;
    if (entry->is_symlink(unknown) && entry->is_directory(unknown)) refuse_link_upwards(entry->path());
    if (is_image(entry->path()) && !entry->is_directory(unknown))
      found.emplace_back(entry->path().parent_path().string(), entry->path().filename().string());
  }
  if (failure) throw DataError(fmt::format("ImageFolder: '{}': {}.", folder.string(), failure.message()));
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (const auto& [parent, name] : found) paths.push_back(fs::path(parent) / name);
  if (paths.empty())
    throw DataError(
        fmt::format("ImageFolder: no image for the class '{}': '{}' has no file that ends in .jpg, .jpeg, "
                    ".png, .ppm, .bmp, .pgm, .tif, .tiff or .webp.",
                    folder.filename().string(), folder.string()));
  return paths;
}

std::vector<std::uint8_t> bytes_of(const fs::path& path) {
  InputFile file(path);
  std::vector<std::uint8_t> bytes(file.size());
  file.read(bytes.data(), bytes.size());
  return bytes;
}

/// The denominator of the smallest scale at which a JPEG still has at least as many pixels as the result.
int denominator_for(double width, double height, double out_width, double out_height) {
  for (const int d : {8, 4, 2}) {
    if (width >= out_width * d && height >= out_height * d) return d;
  }
  return 1;
}

/// Size after torchvision's Resize(size) with a single number.
ImageSize shorter_side(int width, int height, std::int64_t size) {
  if (width <= height) return {static_cast<std::int64_t>(static_cast<double>(size * height) / width), size};
  return {size, static_cast<std::int64_t>(static_cast<double>(size * width) / height)};
}

/// Resamples a decoded region to `size`. At a reduced scale, the region's edges lie between pixels.
Pixels resized(const Decoded& decoded, const Region& region, const ImageSize& size, ImageFilter filter) {
  const double d = decoded.denominator;
  const auto edge = [&](int begin, int length, int limit) {
    const double first = begin / d - std::floor(begin / d);
    return std::pair(first, std::min(first + length / d, static_cast<double>(limit)));
  };
  const auto [left, right] = edge(region.left, region.width, decoded.view.width);
  const auto [top, bottom] = edge(region.top, region.height, decoded.view.height);
  return images::resample(decoded.view, {left, top, right, bottom}, static_cast<int>(size.width),
                          static_cast<int>(size.height), filter);
}

void jitter(Pixels& pixels, const ColorJitterOptions& options, RandomBits& random) {
  const auto factor = [&](double amount) {
    return random.uniform(std::max(0.0, 1.0 - amount), 1.0 + amount);
  };
  std::array<int, 4> order = {0, 1, 2, 3};
  for (std::size_t last = order.size() - 1; last > 0; --last)
    std::swap(order[last],
              order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(last) + 1))]);
  for (const int which : order) {
    if (which == 0 && options.brightness > 0) images::adjust_brightness(pixels, factor(options.brightness));
    if (which == 1 && options.contrast > 0) images::adjust_contrast(pixels, factor(options.contrast));
    if (which == 2 && options.saturation > 0) images::adjust_saturation(pixels, factor(options.saturation));
    if (which == 3 && options.hue > 0) images::adjust_hue(pixels, random.uniform(-options.hue, options.hue));
  }
}

bool jitters(const ColorJitterOptions& options) {
  return options.brightness > 0 || options.contrast > 0 || options.saturation > 0 || options.hue > 0;
}

/// CenterCrop's corner; negative if the image is smaller than the crop.
std::int64_t middle(std::int64_t length, std::int64_t wanted, bool rounds_down) {
  if (wanted > length) return -((wanted - length) / 2);
  if (rounds_down) return (length - wanted) / 2;
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(length - wanted) / 2.0));
}

/// A copy of the center, with black pixels where the image is smaller.
Pixels center_of(const Pixels& image, const ImageSize& size, bool rounds_down) {
  Pixels out(static_cast<int>(size.width), static_cast<int>(size.height));
  std::fill_n(out.data.get(), out.stride() * out.height, std::uint8_t{0});
  const auto left = static_cast<int>(middle(image.width, size.width, rounds_down));
  const auto top = static_cast<int>(middle(image.height, size.height, rounds_down));
  const int columns = std::min(image.width - std::max(left, 0), out.width);
  const int rows = std::min(image.height - std::max(top, 0), out.height);
  const images::PixelView from = image.view().part(std::max(left, 0), std::max(top, 0), columns, rows);
  for (int y = 0; y < rows; ++y) {
    std::memcpy(out.row(y + std::max(-top, 0)) + std::max(-left, 0) * images::kPixelBytes, from.row(y),
                static_cast<std::size_t>(columns * images::kPixelBytes));
  }
  return out;
}

}  // namespace

struct ImageFolder::State {
  ImageFolderOptions options;
  PixelScale scale;
  std::vector<std::string> classes = {};
  std::vector<fs::path> paths = {};
  std::vector<std::int64_t> labels = {};
  std::string fingerprint = {};
  mutable std::mutex mutex = {};
  mutable std::map<std::int64_t, std::string> bad = {};  // Guarded by mutex.

  const fs::path& path(std::int64_t index) const {
    if (index < 0 || index >= static_cast<std::int64_t>(paths.size()))
      throw UsageError(fmt::format("sample {} does not exist: the data set has {} samples, numbered from 0.",
                                   index, paths.size()));
    return paths[static_cast<std::size_t>(index)];
  }

  /// The decoded and resized image, before the center crop.
  Pixels load(const fs::path& path, RandomBits& random) const {
    Region region;
    ImageSize size;
    const auto bytes = bytes_of(path);
    const auto decoded = images::decode(bytes, path.string(), options.max_pixels, [&](int width, int height) {
      region = {0, 0, width, height};
      size = {height, width};
      const auto& crop = options.random_resized_crop;
      if (is_given(crop.size)) {
        region = images::draw_resized_crop(width, height, crop.scale, crop.ratio, random);
        size = crop.size;
      } else if (is_given(options.resize_to)) {
        size = options.resize_to;
      } else if (options.resize > 0) {
        size = shorter_side(width, height, options.resize);
      }
      images::check_pixels(path.string(), size.width, size.height, options.max_pixels);
      if (options.scaled_decoding)
        region.denominator = denominator_for(region.width, region.height, static_cast<double>(size.width),
                                             static_cast<double>(size.height));
      return region;
    });
    return resized(decoded, region, size, options.filter);
  }

  ImageSize size_of(const Pixels& pixels) const {
    return is_given(options.center_crop) ? options.center_crop : ImageSize{pixels.height, pixels.width};
  }

  /// The common size of all images, or none.
  ImageSize fixed_size() const {
    if (is_given(options.center_crop)) return options.center_crop;
    return is_given(options.resize_to) ? options.resize_to : options.random_resized_crop.size;
  }

  at::Tensor empty(std::int64_t rows, const ImageSize& size) const {
    return at::empty({rows, kChannels, size.height, size.width}, options.keep_bytes ? at::kByte : at::kFloat);
  }

  void erase(const at::Tensor& out, RandomBits& random) const {
    const auto& erasing = options.random_erasing;
    if (erasing.probability == 0 || random.uniform() >= erasing.probability) return;
    const auto part = images::draw_erasing(static_cast<int>(out.size(2)), static_cast<int>(out.size(1)),
                                           erasing.scale, erasing.ratio, random);
    if (part) out.narrow(1, part->top, part->height).narrow(2, part->left, part->width).fill_(erasing.value);
  }

  /// Writes the pixels into [3, height, width].
  void finish(const Pixels& pixels, const at::Tensor& out, RandomBits& random) const {
    const ImageGeometry geometry{.channels = kChannels,
                                 .height = pixels.height,
                                 .width = pixels.width,
                                 .channel_stride = 1,
                                 .row_stride = pixels.stride(),
                                 .column_stride = images::kPixelBytes,
                                 .out_height = out.size(1),
                                 .out_width = out.size(2)};
    const bool down = options.center_rounds_down;
    const ImageDraw draw{.top = middle(pixels.height, out.size(1), down),
                         .left = middle(pixels.width, out.size(2), down),
                         .flip = random.uniform() < options.flip_probability};
    if (options.keep_bytes) {
      copy_image(pixels.data.get(), out.mutable_data_ptr<std::uint8_t>(), geometry, draw);
    } else {
      transform_image(pixels.data.get(), out.mutable_data_ptr<float>(), geometry, draw, scale);
    }
    erase(out, random);
  }

  /// Reads one image into `out`, which is created if undefined.
  void read(std::int64_t index, std::uint64_t seed, at::Tensor& out) const {
    RandomBits random(seed);
    Pixels pixels = load(path(index), random);
    if (jitters(options.color_jitter)) {
      if (is_given(options.center_crop))
        pixels = center_of(pixels, options.center_crop, options.center_rounds_down);
      jitter(pixels, options.color_jitter, random);
    }
    if (!out.defined()) out = empty(1, size_of(pixels)).select(0, 0);
    finish(pixels, out, random);
  }

  bool is_bad(std::int64_t index) const {
    const std::lock_guard lock(mutex);
    return bad.contains(index);
  }

  /// read(), or with skip_bad the next image that can be read. Returns the index of the image that was read.
  std::int64_t read_good(std::int64_t index, std::uint64_t seed, at::Tensor& out) const {
    path(index);
    const auto count = static_cast<std::int64_t>(paths.size());
    for (std::int64_t step = 0; step < count; ++step) {
      const std::int64_t place = (index + step) % count;
      if (is_bad(place)) continue;
      try {
        read(place, seed, out);
        return place;
      } catch (const DataError& error) {
        if (!options.skip_bad) throw;
        const std::lock_guard lock(mutex);
        bad.emplace(place, error.what());
      }
    }
    const std::lock_guard lock(mutex);
    throw DataError(fmt::format("ImageFolder: not one of {} images can be read; the first: {}", count,
                                bad.begin()->second));
  }
};

ImageFolder::ImageFolder(const fs::path& root, ImageFolderOptions options) {
  check_options(options);
  PixelScale scale(options.mean, options.std);
  state_ = std::make_unique<State>(std::move(options), std::move(scale));
  state_->classes = folders_of(root);
  std::string names;
  for (std::size_t label = 0; label < state_->classes.size(); ++label) {
    for (auto& path : images_in(root / state_->classes[label])) {
      names += path.lexically_relative(root).string() + '\n';
      state_->paths.push_back(std::move(path));
      state_->labels.push_back(static_cast<std::int64_t>(label));
    }
  }
  state_->fingerprint =
      fmt::format("{} images ({:08x})", state_->paths.size(), crc32c(names.data(), names.size()));
}

ImageFolder::~ImageFolder() = default;

std::int64_t ImageFolder::size() const { return static_cast<std::int64_t>(state_->paths.size()); }

Example ImageFolder::get(std::int64_t index, const SampleContext& context) const {
  at::Tensor image;
  const auto read = state_->read_good(index, context.seed, image);
  Example example{{"image", image},
                  {"label", at::scalar_tensor(state_->labels[static_cast<std::size_t>(read)], at::kLong)}};
  example.valid = {read == index};
  return example;
}

Batch ImageFolder::get_batch(std::span<const std::int64_t> indices,
                             std::span<const SampleContext> contexts) const {
  if (!is_given(state_->fixed_size())) return stacked(indices, contexts);
  const auto rows = static_cast<std::int64_t>(indices.size());
  const auto batch_images = state_->empty(rows, state_->fixed_size());
  std::vector<std::int64_t> labels;
  Batch batch;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    auto out = batch_images.select(0, static_cast<std::int64_t>(row));
    const auto read = state_->read_good(indices[row], contexts[row].seed, out);
    labels.push_back(state_->labels[static_cast<std::size_t>(read)]);
    batch.valid.push_back(read == indices[row]);
  }
  batch.insert("image", batch_images);
  batch.insert("label", at::tensor(labels, at::kLong));
  batch.indices.assign(indices.begin(), indices.end());
  return batch;
}

Batch ImageFolder::stacked(std::span<const std::int64_t> indices,
                           std::span<const SampleContext> contexts) const {
  std::vector<Example> examples;
  for (std::size_t row = 0; row < indices.size(); ++row)
    examples.push_back(get_named(indices[row], contexts[row]));
  return default_collate(std::move(examples));
}

std::string ImageFolder::fingerprint() const { return state_->fingerprint; }
const std::vector<std::string>& ImageFolder::classes() const noexcept { return state_->classes; }
const fs::path& ImageFolder::path(std::int64_t index) const { return state_->path(index); }

std::vector<std::pair<std::int64_t, std::string>> ImageFolder::bad_images() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->bad.begin(), state_->bad.end()};
}

}  // namespace lockstep

#include "checkpoint/torch_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "checkpoint/dtypes.hpp"
#include "checkpoint/zip_archive.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

// How torch.save writes {"weight": tensor}. The pickle has, for each tensor,
//
//   torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks)
//
// where storage is a persistent identifier ("storage", torch.FloatStorage, key, device, elements). Several
// tensors may have one storage, each as a view of it. The storages' bytes are
//   - in an archive: the record "<folder>/data/<key>", beside the pickle "<folder>/data.pkl";
//   - in the older format: behind the pickles. The file is a sequence of five pickles (a magic number, a
//   version, sizes
//     of the machine's integers, the object, the list of keys), and then, for each key of that list, its
//     number of elements in 8 bytes and the elements. A storage may be a part of another one, which the
//     identifier says as a sixth member (key, offset, elements).

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;
using safetensors::Dtype;
using safetensors::find_python_dtype;

/// The longest pickle: some 200,000 tensors.
constexpr std::uint64_t kLongestPickle = 64U << 20U;
constexpr std::size_t kNameLength = 200;
/// "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19": the number that begins a file of the older format.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kLegacyVersion = 1001;

/// The functions that make tensors of storages.
constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor",
                           kRebuildTensor2 = "torch._utils._rebuild_tensor_v2",
                           kRebuildTensor3 = "torch._utils._rebuild_tensor_v3",
                           kRebuildParameter = "torch._utils._rebuild_parameter", kSize = "torch.Size",
                           kOrderedDictClass = "collections.OrderedDict";

bool is_allowed(const std::string& global) {
  for (const auto known :
       {kRebuildTensor, kRebuildTensor2, kRebuildTensor3, kRebuildParameter, kSize, kOrderedDictClass}) {
    if (global == known) return true;
  }
  return find_python_dtype(global) != nullptr;
}

/// The elements of a storage in the file.
struct Storage {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

/// What a persistent identifier says.
struct StorageId {
  std::string key;
  std::string_view dtype;
  std::uint64_t element_bytes = 0;
  std::uint64_t elements = 0;
  /// The first element within the storage of that key.
  std::uint64_t offset = 0;
};

using FindStorage = std::function<Storage(const StorageId&)>;

/// Makes tensors of what a pickle describes.
class StateDict {
 public:
  StateDict(const std::filesystem::path& path, FindStorage find_storage)
      : path_(path), find_storage_(std::move(find_storage)) {}

  std::map<std::string, TorchTensor> read(const PickleValue& root) {
    if (root.kind != Kind::dict) {
      fail(
          fmt::format("it holds an object of type {}. Expected a model's state dictionary: "
                      "torch.save(model.state_dict(), path)",
                      name_of_kind(root.kind)));
    }
    std::map<std::string, TorchTensor> tensors;
    for (std::size_t i = 0; i + 1 < root.items.size(); i += 2) {
      const auto name = read_name(*root.items[i]);
      tensors.insert_or_assign(name, read_entry(*root.items[i + 1]));
    }
    return tensors;
  }

  static StorageId read_identifier(const PickleValue& persistent,
                                   const std::function<void(const char*)>& fail) {
    const PickleValue& tuple = *persistent.items[0];
    const auto& members = tuple.items;
    const bool is_storage = tuple.kind == Kind::tuple && members.size() >= 5 &&
                            members[0]->text == "storage" && members[1]->kind == Kind::global &&
                            members[2]->kind == Kind::text && members[4]->kind == Kind::integer &&
                            members[4]->number >= 0;
    const Dtype* dtype = is_storage ? find_python_dtype(members[1]->text) : nullptr;
    if (dtype == nullptr) fail("a storage's identifier is malformed");
    StorageId id{.key = members[2]->text,
                 .dtype = std::string(dtype->name),
                 .element_bytes = dtype->bytes,
                 .elements = static_cast<std::uint64_t>(members[4]->number)};
    if (members.size() < 6 || members[5]->kind == Kind::none) return id;
    const auto& part = members[5]->items;
    if (part.size() != 3 || part[1]->kind != Kind::integer || part[2]->kind != Kind::integer ||
        part[1]->number < 0 || part[2]->number < 0)
      fail("a part of a storage is malformed");
    id.offset = static_cast<std::uint64_t>(part[1]->number);
    id.elements = static_cast<std::uint64_t>(part[2]->number);
    return id;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format(
        "'{}' cannot be read: {}{}.", path_.string(),
        name_.empty() ? "" : fmt::format("the entry '{}' is wrong: ", name_.substr(0, kNameLength)), what));
  }

  std::string read_name(const PickleValue& key) {
    if (key.kind != Kind::text)
      fail(fmt::format("a name of its dictionary is of type {}, not str", name_of_kind(key.kind)));
    if (first_not_utf8(key.text) != std::string_view::npos) fail("a name of its dictionary is not UTF-8");
    name_ = key.text;
    return name_;
  }

  TorchTensor read_entry(const PickleValue& value) {
    if (value.kind == Kind::call) return read_call(value);
    if (value.kind == Kind::dict) {
      fail(
          "it is of type dict, not a tensor. Expected a model's state dictionary; of a training's "
          "checkpoint, save "
          "that entry "
          "alone");
    }
    fail(fmt::format("it is of type {}, not a tensor", name_of_kind(value.kind)));
  }

  /// The parameters' function takes a tensor that another call makes: at most one level.
  TorchTensor read_call(const PickleValue& call) {
    const auto& function = call.items[0]->text;
    const auto& arguments = call.items[1]->items;
    if (function == kRebuildParameter && !arguments.empty() && arguments[0]->kind == Kind::call &&
        arguments[0]->items[0]->text != kRebuildParameter)
      return read_call(*arguments[0]);
    if (function == kRebuildTensor && arguments.size() == 4) return read_tensor(arguments, nullptr);
    if (function == kRebuildTensor2 && arguments.size() >= 6 &&
        (arguments.size() < 7 || is_empty(*arguments[6])))
      return read_tensor(arguments, nullptr);
    if (function == kRebuildTensor3 && arguments.size() >= 7 && arguments[6]->kind == Kind::global &&
        (arguments.size() < 8 || is_empty(*arguments[7])))
      return read_tensor(arguments, find_python_dtype(arguments[6]->text));
    fail(fmt::format("its call of {} has arguments that are not read", function));
  }

  /// Metadata (a pending conjugation or negation) that says nothing.
  static bool is_empty(const PickleValue& value) {
    return value.kind == Kind::none || (value.kind == Kind::dict && value.items.empty());
  }

  /// `dtype` is given if the storage has none.
  TorchTensor read_tensor(const std::vector<const PickleValue*>& arguments, const Dtype* dtype) {
    if (arguments[0]->kind != Kind::persistent) fail("it has no storage");
    StorageId id = StateDict::read_identifier(*arguments[0], [this](const char* what) { fail(what); });
    const Storage storage = find_storage_(id);
    if (dtype != nullptr) {
      id.dtype = dtype->name;
      id.element_bytes = dtype->bytes;
    }
    TorchTensor tensor;
    tensor.dtype = id.dtype;
    tensor.element_bytes = id.element_bytes;
    tensor.sizes = read_numbers(*arguments[2], "sizes");
    tensor.strides = read_numbers(*arguments[3], "strides");
    if (arguments[1]->kind != Kind::integer || arguments[1]->number < 0)
      fail("its offset is not a number of elements");
    place(tensor, static_cast<std::uint64_t>(arguments[1]->number), storage);
    return tensor;
  }

  std::vector<std::int64_t> read_numbers(const PickleValue& value, const char* what) {
    // torch.Size((2, 3)) or (2, 3)
    const bool is_call =
        value.kind == Kind::call && value.items[0]->text == kSize && value.items[1]->items.size() == 1;
    const PickleValue& tuple = is_call ? *value.items[1]->items[0] : value;
    std::vector<std::int64_t> numbers;
    for (const auto* item : tuple.items) {
      if (item->kind != Kind::integer || item->number < 0)
        fail(fmt::format("its {} are not numbers of elements", what));
      numbers.push_back(item->number);
    }
    if (tuple.kind != Kind::tuple || numbers.size() > safetensors::kMostDimensions)
      fail(fmt::format("its {} are not those of a tensor", what));
    return numbers;
  }

  /// Finds the range of the file, with all products and sums checked: the numbers come from outside.
  void place(TorchTensor& tensor, std::uint64_t offset, const Storage& storage) {
    if (tensor.sizes.size() != tensor.strides.size()) fail("it has another number of sizes than of strides");
    std::uint64_t span = 1, elements = 1;
    bool is_empty = false, is_large = false;
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
      const auto size = static_cast<std::uint64_t>(tensor.sizes[i]);
      is_empty = is_empty || size == 0;
      std::uint64_t step = 0;
      if (size == 0) continue;
      is_large = is_large ||
                 __builtin_mul_overflow(size - 1, static_cast<std::uint64_t>(tensor.strides[i]), &step) ||
                 __builtin_add_overflow(span, step, &span) ||
                 __builtin_mul_overflow(elements, size, &elements);
    }
    std::uint64_t bytes = 0;
    is_large =
        is_large || __builtin_mul_overflow(elements, tensor.element_bytes, &bytes) || bytes > INT64_MAX;
    const auto available = storage.bytes / tensor.element_bytes;
    if (is_empty) span = 0;
    if (is_large || offset > available || span > available - offset) {
      fail(fmt::format("its sizes [{}], strides [{}] and offset {} exceed its storage of {} elements",
                       fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "), offset, available));
    }
    tensor.begin = storage.begin + offset * tensor.element_bytes;
    tensor.elements = span;
  }

  const std::filesystem::path& path_;
  FindStorage find_storage_;
  /// Of the entry that is being read, for messages.
  std::string name_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a file of torch.save that can be read: {}.", path.string(), what));
}

/// The part of a storage that an identifier means.
Storage take_part(const std::filesystem::path& path, const StorageId& id, const Storage& storage) {
  const auto available = storage.bytes / id.element_bytes;
  if (id.offset > available || id.elements > available - id.offset) {
    fail(path, fmt::format("its storage '{}' should have {} elements of {} bytes, but has {} bytes",
                           id.key.substr(0, kNameLength), id.elements, id.element_bytes, storage.bytes));
  }
  return {.begin = storage.begin + id.offset * id.element_bytes, .bytes = id.elements * id.element_bytes};
}

std::string read_text(const InputFile& file, std::uint64_t begin, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  file.read_at(begin, text.data(), text.size());
  return text;
}

std::map<std::string, TorchTensor> read_archive(const std::filesystem::path& path) {
  const ZipArchive archive(path);
  constexpr std::string_view kPickle = "/data.pkl";
  const auto& records = archive.records();
  const auto pickle = std::find_if(records.begin(), records.end(),
                                   [&](const ZipRecord& record) { return record.name.ends_with(kPickle); });
  if (records.empty()) fail(path, "it has no directory at its end: it may be truncated");
  if (pickle == records.end()) fail(path, "the archive has no record data.pkl");
  if (pickle->bytes > kLongestPickle)
    fail(path, fmt::format("its pickle has {} bytes, more than {}", pickle->bytes, kLongestPickle));
  const std::string folder = pickle->name.substr(0, pickle->name.size() - kPickle.size() + 1);
  if (archive.find(folder + "constants.pkl") != nullptr)
    fail(path, "it is a TorchScript program, not a state dictionary");
  if (const auto* order = archive.find(folder + "byteorder");
      order != nullptr && order->bytes < kNameLength &&
      read_text(archive.file(), archive.find_data(*order), order->bytes) != "little")
    fail(path, "it was written on a machine with another byte order");

  std::map<std::string_view, const ZipRecord*> by_name;
  for (const auto& record : records) by_name[record.name] = &record;
  const Pickle content(read_text(archive.file(), archive.find_data(*pickle), pickle->bytes), path.string(),
                       is_allowed);
  return StateDict(path,
                   [&](const StorageId& id) {
                     const auto found = by_name.find(folder + "data/" + id.key);
                     if (found == by_name.end())
                       fail(path, fmt::format("it has no record of the storage '{}'",
                                              id.key.substr(0, kNameLength)));
                     return take_part(path, id, {archive.find_data(*found->second), found->second->bytes});
                   })
      .read(content.root());
}

/// The storages that a tree refers to, by key: with the bytes of an element, which the file does not repeat.
class LegacyStorages {
 public:
  LegacyStorages(const std::filesystem::path& path, const InputFile& file) : path_(path), file_(file) {}

  /// Finds where each begins: `keys` in the order of the file, from `begin` on.
  void locate(const PickleValue& keys, const std::map<std::string, std::uint64_t>& element_bytes,
              std::uint64_t begin) {
    if (keys.kind != Kind::list) fail(path_, "the list of its storages is missing");
    for (const auto* key : keys.items) {
      const auto known = element_bytes.find(key->text);
      if (known == element_bytes.end())
        fail(path_, fmt::format("no tensor refers to its storage '{}'", key->text.substr(0, kNameLength)));
      std::uint64_t elements = 0, bytes = 0;
      if (begin > file_.size() || file_.size() - begin < sizeof(elements)) fail_truncated(key->text);
      file_.read_at(begin, &elements, sizeof(elements));
      begin += sizeof(elements);
      if (__builtin_mul_overflow(elements, known->second, &bytes) || bytes > file_.size() - begin)
        fail_truncated(key->text);
      storages_[key->text] = {begin, bytes};
      begin += bytes;
    }
  }

  Storage find(const StorageId& id) const {
    const auto found = storages_.find(id.key);
    if (found == storages_.end())
      fail(path_, fmt::format("it has no bytes of the storage '{}'", id.key.substr(0, kNameLength)));
    return take_part(path_, id, found->second);
  }

 private:
  [[noreturn]] void fail_truncated(const std::string& key) const {
    fail(path_, fmt::format("it has {} bytes and ends before its storage '{}' does: it may be truncated",
                            file_.size(), key.substr(0, kNameLength)));
  }

  const std::filesystem::path& path_;
  const InputFile& file_;
  std::map<std::string, Storage> storages_;
};

/// The size of an element of each storage that the values of a pickle name.
std::map<std::string, std::uint64_t> find_element_sizes(const std::filesystem::path& path,
                                                        const Pickle& object) {
  std::map<std::string, std::uint64_t> sizes;
  object.for_each([&](const PickleValue& value) {
    if (value.kind != Kind::persistent) return;
    const auto id = StateDict::read_identifier(value, [&](const char* what) { fail(path, what); });
    const auto [known, is_new] = sizes.emplace(id.key, id.element_bytes);
    if (!is_new && known->second != id.element_bytes)
      fail(path, fmt::format("its storage '{}' has two dtypes", id.key.substr(0, kNameLength)));
  });
  return sizes;
}

std::map<std::string, TorchTensor> read_legacy(const std::filesystem::path& path) {
  const InputFile file(path);
  const std::string head = read_text(file, 0, std::min(file.size(), kLongestPickle));
  std::string_view rest = head;
  const auto next = [&] {
    Pickle pickle(rest, path.string(), is_allowed);
    rest.remove_prefix(pickle.size());
    return pickle;
  };
  const Pickle magic = next();
  if (magic.root().kind != Kind::big_integer || magic.root().text != kMagic)
    fail(path, "it is a pickle, but does not begin with torch.save's magic number");
  const Pickle version = next();
  if (version.root().number != kLegacyVersion)
    fail(path, fmt::format("its format is {}, not {}", version.root().number, kLegacyVersion));
  const Pickle machine = next();
  for (std::size_t i = 0; i + 1 < machine.root().items.size(); i += 2) {
    if (machine.root().items[i]->text == "little_endian" && machine.root().items[i + 1]->number != 1)
      fail(path, "it was written on a machine with another byte order");
  }
  const Pickle object = next();
  const Pickle keys = next();
  LegacyStorages storages(path, file);
  storages.locate(keys.root(), find_element_sizes(path, object), head.size() - rest.size());
  return StateDict(path, [&](const StorageId& id) { return storages.find(id); }).read(object.root());
}

std::string read_first_bytes(const std::filesystem::path& path) {
  const InputFile file(path);
  return read_text(file, 0, std::min<std::uint64_t>(file.size(), 32));
}

bool is_archive(std::string_view first) { return first.starts_with("PK\x03\x04"); }

/// The magic number is an integer of ten bytes, which a frame may precede (since protocol 4).
bool is_legacy(std::string_view first) {
  if (first.size() < 2 || first[0] != '\x80' || first[1] < 2 || first[1] > 5) return false;
  const std::string number = "\x8a\x0a" + std::string(kMagic);
  first.remove_prefix(2);
  return first.starts_with(number) ||
         (first.starts_with('\x95') &&
          first.substr(std::min<std::size_t>(9, first.size())).starts_with(number));
}

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  const auto first = read_first_bytes(path);
  return is_archive(first) || is_legacy(first);
}

TorchFile::TorchFile(const std::filesystem::path& path)
    : path_(path),
      file_(path),
      tensors_(is_archive(read_first_bytes(path)) ? read_archive(path) : read_legacy(path)) {}

void TorchFile::read(const TorchTensor& tensor, void* data) const {
  file_.read_at(tensor.begin, data, tensor.elements * tensor.element_bytes);
}

}  // namespace lockstep

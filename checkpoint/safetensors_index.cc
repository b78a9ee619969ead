#include <algorithm>

#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr size_t kKeysMax = 10'000'000;
constexpr std::string_view kEnding = ".safetensors";

// A name that can not lead out of the folder, on any system.
bool stays_in_folder(std::string_view name) {
  const bool is_plain = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == 0x7F || c == '/' || c == '\\' || c == ':';
  });
  return is_plain && !name.starts_with('.') && name.ends_with(kEnding) && name.size() <= 255;
}

class IndexReceiver final : public JsonReceiver {
 public:
  Status finish(std::map<std::string, std::string>& files) {
    if (!has_map_) return base::data_loss("V18: there is no weight_map");
    files = std::move(files_);
    return Status::ok();
  }

  Status on_begin_object() override {
    if (depth_ == 1 && is_map_) has_map_ = true;
    if (depth_ > 1) RETURN_IF_ERROR(refuse_in_map());
    ++depth_;
    return Status::ok();
  }
  Status on_begin_array() override {
    RETURN_IF_ERROR(refuse_in_map());
    ++depth_;
    return Status::ok();
  }
  Status on_end() override {
    --depth_;
    return Status::ok();
  }

  Status on_key(std::string& key) override {
    if (depth_ == 1) is_map_ = key == "weight_map";
    if (depth_ == 2 && is_map_) tensor_ = std::move(key);
    return Status::ok();
  }

  Status on_string(std::string& value) override {
    if (depth_ != 2 || !is_map_) return refuse_in_map();
    if (!stays_in_folder(value)) {
      return base::data_loss("V18: tensor " + in_quotes(tensor_) + " is said to be in the file " +
                             in_quotes(value) + ": not one plain name that ends in .safetensors");
    }
    files_.emplace(std::move(tensor_), std::move(value));
    return Status::ok();
  }
  Status on_integer(uint64_t) override { return refuse_in_map(); }
  Status on_other() override { return refuse_in_map(); }

 private:
  Status refuse_in_map() const {
    if (!is_map_) return Status::ok();
    return base::data_loss("V18: weight_map is not an object of strings");
  }

  size_t depth_ = 0;
  bool is_map_ = false;
  bool has_map_ = false;
  std::string tensor_;
  std::map<std::string, std::string> files_;
};

Status check_index(const std::map<std::string, std::string>& index,
                   const std::map<std::string, SafetensorsHeader>& files) {
  std::map<std::string, std::string> found;
  for (const auto& [file, header] : files) {
    for (const StoredTensor& tensor : header.tensors) {
      const auto [other, is_new] = found.emplace(tensor.name, file);
      if (!is_new) {
        return base::data_loss("V18: tensor " + in_quotes(tensor.name) + " is in " +
                               in_quotes(other->second) + " and in " + in_quotes(file));
      }
      const auto told = index.find(tensor.name);
      if (told == index.end() || told->second != file) {
        return base::data_loss(
            "V18: tensor " + in_quotes(tensor.name) + " is in " + in_quotes(file) +
            ", the index says " +
            (told == index.end() ? std::string("nothing of it") : in_quotes(told->second)));
      }
    }
  }
  for (const auto& [tensor, file] : index) {
    if (!found.contains(tensor)) {
      return base::data_loss("V18: tensor " + in_quotes(tensor) + " is not in " + in_quotes(file));
    }
  }
  return Status::ok();
}

}  // namespace

base::Result<std::map<std::string, std::string>> parse_safetensors_index(base::ByteSpan json,
                                                                         std::string_view name) {
  IndexReceiver receiver;
  Status status =
      read_strict_json(base::as_text(json), {.depth_max = 16, .keys_max = kKeysMax}, receiver);
  std::map<std::string, std::string> files;
  if (status.is_ok()) status = receiver.finish(files);
  if (!status.is_ok()) return status.annotate(name);
  return files;
}

base::Status check_safetensors_index(const std::map<std::string, std::string>& index,
                                     const std::map<std::string, SafetensorsHeader>& files,
                                     std::string_view name) {
  const Status status = check_index(index, files);
  return status.is_ok() ? status : status.annotate(name);
}

}  // namespace perdure::checkpoint

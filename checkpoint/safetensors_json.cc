#include "checkpoint/safetensors_json.h"

#include <limits>
#include <optional>

#include "base/check.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr uint64_t kIntegerMax = std::numeric_limits<int64_t>::max();

// Depth 1: names. Depth 2: the fields of a tensor, or of the metadata. Depth 3: numbers.
class HeaderReceiver final : public JsonReceiver {
 public:
  explicit HeaderReceiver(const ReadLimits& limits) : limits_(limits) {}

  HeaderJson take() { return std::move(header_); }

  Status on_begin_object() override {
    if (depth_ == 1) {
      entry_ = {};
    } else if (depth_ > 1) {
      RETURN_IF_ERROR(refuse_unless_ignored());
    }
    ++depth_;
    return Status::ok();
  }

  Status on_begin_array() override {
    const bool is_list = depth_ == 2 && (field_ == Field::kShape || field_ == Field::kOffsets);
    if (!is_list) RETURN_IF_ERROR(refuse_unless_ignored());
    ++depth_;
    return Status::ok();
  }

  Status on_end() override {
    --depth_;
    if (depth_ == 2 && field_ == Field::kOffsets) return finish_offsets();
    if (depth_ == 2 && field_ == Field::kShape) entry_.has_shape = true;
    if (depth_ == 1 && !is_metadata_) return finish_entry();
    return Status::ok();
  }

  Status on_key(std::string& key) override {
    if (depth_ == 1) return begin_name(key);
    if (depth_ > 2) return Status::ok();
    field_ = Field::kIgnored;
    if (is_metadata_) {
      field_ = Field::kMetadata;
      metadata_key_ = std::move(key);
    } else if (key == "dtype") {
      field_ = Field::kType;
    } else if (key == "shape") {
      field_ = Field::kShape;
    } else if (key == "data_offsets") {
      field_ = Field::kOffsets;
    }
    return Status::ok();
  }

  Status on_string(std::string& value) override {
    if (depth_ == 2 && field_ == Field::kMetadata) {
      header_.metadata.emplace(std::move(metadata_key_), std::move(value));
      return Status::ok();
    }
    if (depth_ == 2 && field_ == Field::kType) return take_type(value);
    return refuse_unless_ignored();
  }

  Status on_integer(uint64_t value) override {
    if (depth_ != 3 || !is_number_list()) return refuse_unless_ignored();
    if (value > kIntegerMax) {
      return base::data_loss("V9: " + where() + ": " + std::to_string(value) +
                             " is more than 2^63 - 1");
    }
    if (field_ == Field::kOffsets) {
      if (entry_.offset_count < 2) entry_.offsets[entry_.offset_count] = value;
      ++entry_.offset_count;
      return Status::ok();
    }
    if (entry_.tensor.shape.size() == limits_.dimensions_max) {
      return base::data_loss("V10: " + where() + " has more than " +
                             std::to_string(limits_.dimensions_max) + " dimensions");
    }
    entry_.tensor.shape.push_back(static_cast<int64_t>(value));
    return Status::ok();
  }

  Status on_other() override {
    if (depth_ == 3 && is_number_list()) {
      return base::data_loss("V9: " + where() +
                             " has something that is not an integer from 0 to 2^63 - 1, written in "
                             "digits only");
    }
    return refuse_unless_ignored();
  }

 private:
  enum class Field { kIgnored, kType, kShape, kOffsets, kMetadata };

  struct Entry {
    StoredTensor tensor;
    bool has_type = false;
    bool has_shape = false;
    bool has_offsets = false;
    size_t offset_count = 0;
    uint64_t offsets[2] = {};
  };

  bool is_number_list() const { return field_ == Field::kShape || field_ == Field::kOffsets; }

  std::string where() const {
    const std::string tensor = "tensor " + in_quotes(name_);
    if (field_ == Field::kShape) return "shape of " + tensor;
    if (field_ == Field::kOffsets) return "data_offsets of " + tensor;
    return tensor;
  }

  Status begin_name(std::string& key) {
    is_metadata_ = key == "__metadata__";
    name_ = std::move(key);
    field_ = Field::kIgnored;
    if (is_metadata_) return Status::ok();
    if (name_.find('\0') != std::string::npos) {
      return base::data_loss("V6: tensor " + in_quotes(name_) + " has a zero byte in its name");
    }
    if (header_.tensors.size() == limits_.tensors_max) {
      return base::data_loss("V16: more than " + std::to_string(limits_.tensors_max) + " tensors");
    }
    return Status::ok();
  }

  // A value that stands where another kind of value has to be. Fields that the format does not
  // know may hold anything.
  Status refuse_unless_ignored() const {
    CHECK_GE(depth_, 1u);
    if (depth_ == 1 && is_metadata_) return base::data_loss("V8: __metadata__ is no object");
    if (depth_ == 1) return base::data_loss("V7: tensor " + in_quotes(name_) + " is no object");
    switch (field_) {
      case Field::kIgnored:
        return Status::ok();
      case Field::kMetadata:
        return base::data_loss("V8: __metadata__: the value of " + in_quotes(metadata_key_) +
                               " is no string");
      case Field::kType:
        return base::data_loss("V7: dtype of tensor " + in_quotes(name_) + " is no string");
      case Field::kShape:
      case Field::kOffsets:
        return base::data_loss("V7: " + where() + " is no list of integers");
    }
    return base::internal("no such field");
  }

  Status take_type(const std::string& value) {
    const std::optional<ElementType> type = element_type_of(value);
    if (!type) {
      return base::invalid_argument("V11: tensor " + in_quotes(name_) + " has the unknown dtype " +
                                    in_quotes(value));
    }
    entry_.tensor.type = *type;
    entry_.has_type = true;
    return Status::ok();
  }

  Status finish_offsets() {
    field_ = Field::kIgnored;
    if (entry_.offset_count == 2) {
      entry_.has_offsets = true;
      return Status::ok();
    }
    return base::data_loss("V7: data_offsets of tensor " + in_quotes(name_) + " has " +
                           std::to_string(entry_.offset_count) + " numbers, not 2");
  }

  Status finish_entry() {
    const std::string_view missing = !entry_.has_type      ? "dtype"
                                     : !entry_.has_shape   ? "shape"
                                     : !entry_.has_offsets ? "data_offsets"
                                                           : "";
    if (!missing.empty()) {
      return base::data_loss("V7: tensor " + in_quotes(name_) + " has no " + std::string(missing));
    }
    entry_.tensor.name = std::move(name_);
    entry_.tensor.begin = entry_.offsets[0];
    entry_.tensor.end = entry_.offsets[1];
    header_.tensors.push_back(std::move(entry_.tensor));
    return Status::ok();
  }

  const ReadLimits limits_;
  HeaderJson header_;
  size_t depth_ = 0;
  std::string name_;
  bool is_metadata_ = false;
  std::string metadata_key_;
  Field field_ = Field::kIgnored;
  Entry entry_;
};

}  // namespace

base::Result<HeaderJson> read_header_json(std::string_view json, const ReadLimits& limits) {
  HeaderReceiver receiver(limits);
  // One more key than tensors: the metadata.
  RETURN_IF_ERROR(read_strict_json(json, {.keys_max = limits.tensors_max + 1}, receiver));
  return receiver.take();
}

}  // namespace perdure::checkpoint

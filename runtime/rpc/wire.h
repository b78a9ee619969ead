#pragma once
// How a message struct becomes bytes. A struct lists its fields once and is then both encoded and
// decoded by that list:
//
//   struct Beat {
//     static constexpr MessageType kType = MessageType::kBeat;
//     uint64_t sequence = 0;
//     std::vector<WorkerBeat> workers;
//     template <typename V> void visit(V& v) { v(sequence, workers); }
//   };
//   Payload payload = rpc::to_bytes(beat);
//   ASSIGN_OR_RETURN(const Beat beat, rpc::from_bytes<Beat>(payload));
//
// Fields: integers, double, enums with an underlying integer, strong ids, strings, byte vectors,
// vectors of these, structs with visit(). A struct may have `base::Status check() const`, which
// decoding calls. Lengths are bounded by what is really there, so a wrong length cannot make the
// decoder allocate more than a few times the message (but for layouts: parallel/layout_runs.h has
// their limit). Little-endian; format: docs/formats/rpc.md.

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/ids.h"
#include "base/status.h"

namespace perdure::runtime::rpc {

using Payload = std::vector<std::byte>;

inline constexpr size_t kTextBytesMax = 1 << 20;
inline constexpr size_t kElementsMax = 1 << 22;

class WireWriter {
 public:
  static constexpr bool kWrites = true;  // for a visit_fields that must know
  explicit WireWriter(base::Encoder& out) : out_(out) {}
  template <typename... T>
  void operator()(const T&... values) {
    (write(values), ...);
  }

 private:
  template <typename T>
  void write(const T& value);
  template <typename T>
  void write(const std::vector<T>& values);
  template <typename Tag, typename Int>
  void write(const base::StrongId<Tag, Int>& id) {
    write(id.value());
  }
  void write(const std::string& text) { out_.string(text); }
  void write(const std::vector<std::byte>& bytes) { out_.bytes(bytes); }

  base::Encoder& out_;
};

class WireReader {
 public:
  explicit WireReader(base::Decoder& in) : in_(in) {}
  // In order; after the first error nothing is read any more.
  template <typename... T>
  void operator()(T&... values) {
    (read_next(values), ...);
  }
  const base::Status& status() const { return status_; }

 private:
  template <typename T>
  void read_next(T& value) {
    if (status_.is_ok()) status_ = read(value);
  }
  template <typename T>
  base::Status read(T& value);
  template <typename T>
  base::Status read(std::vector<T>& values);
  template <typename Tag, typename Int>
  base::Status read(base::StrongId<Tag, Int>& id) {
    Int value{};
    RETURN_IF_ERROR(read(value));
    id = base::StrongId<Tag, Int>(value);
    return base::Status::ok();
  }
  base::Status read(std::string& text) {
    ASSIGN_OR_RETURN(text, in_.string(kTextBytesMax));
    return base::Status::ok();
  }
  base::Status read(std::vector<std::byte>& bytes) {
    ASSIGN_OR_RETURN(const base::ByteSpan view, in_.bytes(in_.left_bytes()));
    bytes.assign(view.begin(), view.end());
    return base::Status::ok();
  }

  base::Decoder& in_;
  base::Status status_;
};

// Types of lower folders have a `visit_fields(visitor, value)` beside themselves instead.
template <typename V, typename T>
concept HasVisit = requires(V& v, T& t) {
  t.visit(v);
};

template <typename T>
void WireWriter::write(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    write(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    out_.f64(value);
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (sizeof(T) == 1) out_.u8(static_cast<uint8_t>(value));
    if constexpr (sizeof(T) == 2) out_.u16(static_cast<uint16_t>(value));
    if constexpr (sizeof(T) == 4) out_.u32(static_cast<uint32_t>(value));
    if constexpr (sizeof(T) == 8) out_.u64(static_cast<uint64_t>(value));
  } else if constexpr (HasVisit<WireWriter, T>) {
    const_cast<T&>(value).visit(*this);  // a writer changes nothing
  } else {
    visit_fields(*this, const_cast<T&>(value));
  }
}

template <typename T>
void WireWriter::write(const std::vector<T>& values) {
  out_.u32(static_cast<uint32_t>(values.size()));
  for (const T& value : values) write(value);
}

template <typename T>
base::Status WireReader::read(T& value) {
  if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    RETURN_IF_ERROR(read(number));
    value = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, double>) {
    ASSIGN_OR_RETURN(value, in_.f64());
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (sizeof(T) == 1) {
      ASSIGN_OR_RETURN(value, in_.u8());
    }
    if constexpr (sizeof(T) == 2) {
      ASSIGN_OR_RETURN(value, in_.u16());
    }
    if constexpr (sizeof(T) == 4) {
      ASSIGN_OR_RETURN(value, in_.u32());
    }
    if constexpr (sizeof(T) == 8) {
      ASSIGN_OR_RETURN(value, in_.u64());
    }
  } else {
    if constexpr (HasVisit<WireReader, T>) {
      value.visit(*this);
    } else {
      visit_fields(*this, value);
    }
    RETURN_IF_ERROR(status_);
    if constexpr (requires { value.check(); }) RETURN_IF_ERROR(value.check());
  }
  return base::Status::ok();
}

template <typename T>
base::Status WireReader::read(std::vector<T>& values) {
  ASSIGN_OR_RETURN(const uint32_t count, in_.u32());
  // Every element takes at least one byte.
  if (count > kElementsMax || count > in_.left_bytes()) {
    return base::data_loss("a list of " + std::to_string(count) + " elements in " +
                           std::to_string(in_.left_bytes()) + " bytes");
  }
  values.clear();
  for (uint32_t i = 0; i < count; ++i) {
    T value{};
    RETURN_IF_ERROR(read(value));
    values.push_back(std::move(value));
  }
  return base::Status::ok();
}

template <typename T>
Payload to_bytes(const T& message) {
  base::Encoder out;
  WireWriter writer(out);
  writer(message);
  return out.take();
}

// kDataLoss when short, long or out of range; the error of check().
template <typename T>
base::Result<T> from_bytes(base::ByteSpan payload) {
  base::Decoder in(payload);
  WireReader reader(in);
  T message{};
  reader(message);
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(in.finish());
  return message;
}

}  // namespace perdure::runtime::rpc

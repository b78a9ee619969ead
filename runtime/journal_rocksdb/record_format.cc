#include "runtime/journal_rocksdb/record_format.h"

#include "base/codec.h"
#include "base/hash.h"

namespace perdure::runtime::journal_rocksdb {
namespace {

constexpr size_t kKeyBytes = 8;

uint64_t checksum(uint64_t number, uint8_t kind, base::ByteSpan payload) {
  base::Encoder place;
  place.u64(number);
  place.u8(kind);
  return base::hash64(payload, base::hash64(place.bytes()));
}

}  // namespace

std::string encode_key(uint64_t number) {
  std::string key(kKeyBytes, '\0');
  for (size_t i = 0; i < kKeyBytes; ++i) {
    key[i] = static_cast<char>(number >> (8 * (kKeyBytes - 1 - i)));
  }
  return key;
}

base::Result<uint64_t> decode_key(std::string_view key) {
  if (key.size() != kKeyBytes) {
    return base::data_loss("journal: a key of " + std::to_string(key.size()) + " bytes");
  }
  uint64_t number = 0;
  for (const char c : key) number = (number << 8) | static_cast<uint8_t>(c);
  return number;
}

std::string encode_record(uint64_t number, const coordinator::JournalRecord& record) {
  const uint8_t kind = static_cast<uint8_t>(record.kind);
  base::Encoder out;
  out.u8(kind);
  out.u64(checksum(number, kind, record.payload));
  out.raw(record.payload);
  return std::string(base::as_text(out.bytes()));
}

base::Result<coordinator::JournalRecord> decode_record(uint64_t number, std::string_view value) {
  const base::Status damaged =
      base::data_loss("journal: record " + std::to_string(number) + " is damaged");
  base::Decoder in(base::as_byte_span(value));
  const base::Result<uint8_t> kind = in.u8();
  const base::Result<uint64_t> sum = in.u64();
  if (!kind.is_ok() || !sum.is_ok()) return damaged;
  ASSIGN_OR_RETURN(const base::ByteSpan payload, in.raw(in.left_bytes()));
  if (checksum(number, *kind, payload) != *sum) return damaged;
  return coordinator::JournalRecord{.kind = static_cast<coordinator::RecordKind>(*kind),
                                    .payload = {payload.begin(), payload.end()}};
}

}  // namespace perdure::runtime::journal_rocksdb

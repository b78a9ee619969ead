#pragma once
// How a journal record lies in its value: kind u8, checksum u64, payload. The checksum covers the
// key, too, so that a value under another key does not pass. Format: docs/formats/journal.md.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/coordinator/journal.h"

namespace perdure::runtime::journal_rocksdb {

// Big-endian, so that keys lie in the order of their numbers.
std::string encode_key(uint64_t number);
// kDataLoss when it is no key of ours.
base::Result<uint64_t> decode_key(std::string_view key);

std::string encode_record(uint64_t number, const coordinator::JournalRecord& record);
// kDataLoss names the record.
base::Result<coordinator::JournalRecord> decode_record(uint64_t number, std::string_view value);

}  // namespace perdure::runtime::journal_rocksdb

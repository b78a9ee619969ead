#pragma once
// What processes and the fault server say to each other over the Unix socket: one JSON line there,
// one back, a connection for each.
//
//   {"ask":"hello","role":"worker","number":2,"pid":71,"group":60}  ->  {"faults":["at=... "]}
//   {"ask":"hit", ... ,"point":"step.reduce","step":20,"epoch":1}   -> {"answer":"slow","factor":3}

#include <string>
#include <string_view>
#include <vector>

#include "runtime/faults/fault_book.h"

namespace perdure::runtime::faults {

inline constexpr size_t kFaultLineBytesMax = 1 << 16;
// Names the socket in the environment of the job's processes.
inline constexpr const char* kFaultSocketVariable = "PERDURE_FAULT_SOCKET";

struct FaultQuestion {
  bool is_hit = false;  // else: hello, `hit` has `who` only
  FaultHit hit;
};

struct FaultReply {
  FaultAnswer answer = FaultAnswer::kGoOn;
  double factor = 1.0;
};

std::string encode(const FaultQuestion& question);
std::string encode_list(const std::vector<FaultSpec>& specs);
std::string encode(const FaultReply& reply);
// kDataLoss: not such a line.
base::Result<FaultQuestion> decode_question(std::string_view line);
base::Result<std::vector<FaultSpec>> decode_list(std::string_view line);
base::Result<FaultReply> decode_reply(std::string_view line);

}  // namespace perdure::runtime::faults

#include "runtime/faults/fault_wire.h"

#include <array>
#include <nlohmann/json.hpp>

namespace perdure::runtime::faults {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 3> kRoles = {"coordinator", "agent", "worker"};
constexpr std::array<const char*, 4> kAnswers = {"go_on", "exit", "slow", "drop"};

template <size_t N>
base::Result<uint8_t> index_in(const std::array<const char*, N>& words, const json& line,
                               const char* key) {
  if (line.contains(key) && line[key].is_string()) {
    for (size_t i = 0; i < N; ++i) {
      if (line[key].get<std::string>() == words[i]) return static_cast<uint8_t>(i);
    }
  }
  return base::data_loss(std::string("fault message without a good '") + key + "'");
}

template <typename Int>
base::Result<Int> number_in(const json& line, const char* key) {
  if (!line.contains(key) || !line[key].is_number_integer()) {
    return base::data_loss(std::string("fault message without a good '") + key + "'");
  }
  return line[key].get<Int>();
}

base::Result<json> parse(std::string_view line) {
  json value = json::parse(line, nullptr, false);
  if (!value.is_object()) return base::data_loss("fault message that is no JSON object");
  return value;
}

}  // namespace

std::string encode(const FaultQuestion& question) {
  const ProcessInfo& who = question.hit.who;
  json line = {{"ask", question.is_hit ? "hit" : "hello"},
               {"role", kRoles.at(static_cast<size_t>(who.role))},
               {"number", who.number},
               {"pid", who.pid},
               {"group", who.group}};
  if (question.is_hit) {
    line["point"] = question.hit.point;
    line["step"] = question.hit.step;
    line["epoch"] = question.hit.epoch;
  }
  return line.dump() + "\n";
}

std::string encode_list(const std::vector<FaultSpec>& specs) {
  json texts = json::array();
  for (const FaultSpec& spec : specs) texts.push_back(spec.text);
  const json line = {{"faults", texts}};
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string encode(const FaultReply& reply) {
  const json line = {{"answer", kAnswers.at(static_cast<size_t>(reply.answer))},
                     {"factor", reply.factor}};
  return line.dump() + "\n";
}

base::Result<FaultQuestion> decode_question(std::string_view text) {
  ASSIGN_OR_RETURN(const json line, parse(text));
  FaultQuestion question;
  ASSIGN_OR_RETURN(const uint8_t role, index_in(kRoles, line, "role"));
  ProcessInfo& who = question.hit.who;
  who.role = static_cast<ProcessRole>(role);
  ASSIGN_OR_RETURN(who.number, number_in<uint32_t>(line, "number"));
  ASSIGN_OR_RETURN(who.pid, number_in<int>(line, "pid"));
  ASSIGN_OR_RETURN(who.group, number_in<int>(line, "group"));
  // 0, 1 and negative numbers would aim at more than a process.
  if (who.pid < 2 || who.group < 2) return base::data_loss("fault message of no process");
  ASSIGN_OR_RETURN(const uint8_t ask,
                   index_in(std::array<const char*, 2>{"hello", "hit"}, line, "ask"));
  question.is_hit = ask == 1;
  if (!question.is_hit) return question;
  if (!line.contains("point") || !line["point"].is_string()) {
    return base::data_loss("fault message without a good 'point'");
  }
  question.hit.point = line["point"].get<std::string>();
  ASSIGN_OR_RETURN(question.hit.step, number_in<uint64_t>(line, "step"));
  ASSIGN_OR_RETURN(question.hit.epoch, number_in<uint64_t>(line, "epoch"));
  return question;
}

base::Result<std::vector<FaultSpec>> decode_list(std::string_view text) {
  ASSIGN_OR_RETURN(const json line, parse(text));
  if (!line.contains("faults") || !line["faults"].is_array()) {
    return base::data_loss("fault message without a good 'faults'");
  }
  std::vector<std::string> texts;
  for (const json& one : line["faults"]) {
    if (!one.is_string()) return base::data_loss("fault message without a good 'faults'");
    texts.push_back(one.get<std::string>());
  }
  return parse_faults(texts);
}

base::Result<FaultReply> decode_reply(std::string_view text) {
  ASSIGN_OR_RETURN(const json line, parse(text));
  FaultReply reply;
  ASSIGN_OR_RETURN(const uint8_t answer, index_in(kAnswers, line, "answer"));
  reply.answer = static_cast<FaultAnswer>(answer);
  if (line.contains("factor") && line["factor"].is_number()) reply.factor = line["factor"];
  return reply;
}

}  // namespace perdure::runtime::faults

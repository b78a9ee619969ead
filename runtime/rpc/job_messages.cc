#include "runtime/rpc/job_messages.h"

#include "base/codec.h"

namespace perdure::runtime::rpc {
namespace {

using base::ByteSpan;
using base::Decoder;
using base::Encoder;
using base::Result;

constexpr size_t kTextBytesMax = 1 << 20;
constexpr size_t kTokenBytesMax = 256;
constexpr size_t kAddressBytesMax = 1 << 16;
constexpr uint32_t kRanksMax = 1 << 16;
constexpr uint32_t kOverridesMax = 4096;

std::vector<std::byte> copy_of(ByteSpan bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

Payload Hello::encode() const {
  Encoder out;
  out.string(job_token);
  out.u32(worker.value());
  out.u64(pid);
  return out.take();
}

Result<Hello> Hello::decode(ByteSpan payload) {
  Decoder in(payload);
  Hello m;
  ASSIGN_OR_RETURN(m.job_token, in.string(kTokenBytesMax));
  ASSIGN_OR_RETURN(const uint32_t worker, in.u32());
  m.worker = base::WorkerId(worker);
  ASSIGN_OR_RETURN(m.pid, in.u64());
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload Assignment::encode() const {
  Encoder out;
  out.u32(rank.value());
  out.u32(ranks);
  out.u64(epoch.value());
  out.string(job_toml);
  out.string(job_source);
  out.u32(static_cast<uint32_t>(overrides.size()));
  for (const std::string& text : overrides) out.string(text);
  return out.take();
}

Result<Assignment> Assignment::decode(ByteSpan payload) {
  Decoder in(payload);
  Assignment m;
  ASSIGN_OR_RETURN(const uint32_t rank, in.u32());
  ASSIGN_OR_RETURN(m.ranks, in.u32());
  ASSIGN_OR_RETURN(const uint64_t epoch, in.u64());
  if (m.ranks == 0 || m.ranks > kRanksMax || rank >= m.ranks)
    return base::data_loss("rank outside the job");
  m.rank = base::Rank(rank);
  m.epoch = base::Epoch(epoch);
  ASSIGN_OR_RETURN(m.job_toml, in.string(kTextBytesMax));
  ASSIGN_OR_RETURN(m.job_source, in.string(kTextBytesMax));
  ASSIGN_OR_RETURN(const uint32_t count, in.u32());
  if (count > kOverridesMax) return base::data_loss("too many overrides");
  for (uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::string text, in.string(kTextBytesMax));
    m.overrides.push_back(std::move(text));
  }
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload Ready::encode() const {
  Encoder out;
  out.bytes(address);
  out.string(device);
  out.u64(planned_bytes);
  return out.take();
}

Result<Ready> Ready::decode(ByteSpan payload) {
  Decoder in(payload);
  Ready m;
  ASSIGN_OR_RETURN(const ByteSpan address, in.bytes(kAddressBytesMax));
  m.address = copy_of(address);
  ASSIGN_OR_RETURN(m.device, in.string(kTextBytesMax));
  ASSIGN_OR_RETURN(m.planned_bytes, in.u64());
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload Start::encode() const {
  Encoder out;
  out.u32(static_cast<uint32_t>(addresses.size()));
  for (const std::vector<std::byte>& address : addresses) out.bytes(address);
  return out.take();
}

Result<Start> Start::decode(ByteSpan payload) {
  Decoder in(payload);
  Start m;
  ASSIGN_OR_RETURN(const uint32_t count, in.u32());
  if (count > kRanksMax) return base::data_loss("too many addresses");
  for (uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const ByteSpan address, in.bytes(kAddressBytesMax));
    m.addresses.push_back(copy_of(address));
  }
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload StepReport::encode() const {
  Encoder out;
  out.u64(step.value());
  out.f64(loss);
  out.f64(grad_norm);
  out.f64(learning_rate);
  out.u32(attempts);
  out.u8(applied);
  out.u64(digest_before);
  out.f64(step_ms);
  return out.take();
}

Result<StepReport> StepReport::decode(ByteSpan payload) {
  Decoder in(payload);
  StepReport m;
  ASSIGN_OR_RETURN(const uint64_t step, in.u64());
  m.step = base::Step(step);
  ASSIGN_OR_RETURN(m.loss, in.f64());
  ASSIGN_OR_RETURN(m.grad_norm, in.f64());
  ASSIGN_OR_RETURN(m.learning_rate, in.f64());
  ASSIGN_OR_RETURN(m.attempts, in.u32());
  ASSIGN_OR_RETURN(m.applied, in.u8());
  ASSIGN_OR_RETURN(m.digest_before, in.u64());
  ASSIGN_OR_RETURN(m.step_ms, in.f64());
  if (step == 0 || m.attempts == 0 || m.applied > 1)
    return base::data_loss("a step report out of range");
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload EvaluationReport::encode() const {
  Encoder out;
  out.u64(step.value());
  out.f64(loss);
  return out.take();
}

Result<EvaluationReport> EvaluationReport::decode(ByteSpan payload) {
  Decoder in(payload);
  EvaluationReport m;
  ASSIGN_OR_RETURN(const uint64_t step, in.u64());
  m.step = base::Step(step);
  ASSIGN_OR_RETURN(m.loss, in.f64());
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload Finished::encode() const {
  Encoder out;
  out.u64(step.value());
  out.u64(state_digest);
  out.u64(params_digest);
  out.u64(peak_bytes);
  out.u64(faults_after_warmup);
  out.f64(compute_seconds);
  return out.take();
}

Result<Finished> Finished::decode(ByteSpan payload) {
  Decoder in(payload);
  Finished m;
  ASSIGN_OR_RETURN(const uint64_t step, in.u64());
  m.step = base::Step(step);
  ASSIGN_OR_RETURN(m.state_digest, in.u64());
  ASSIGN_OR_RETURN(m.params_digest, in.u64());
  ASSIGN_OR_RETURN(m.peak_bytes, in.u64());
  ASSIGN_OR_RETURN(m.faults_after_warmup, in.u64());
  ASSIGN_OR_RETURN(m.compute_seconds, in.f64());
  RETURN_IF_ERROR(in.finish());
  return m;
}

Payload Failed::encode() const {
  Encoder out;
  out.u32(code);
  out.string(std::string_view(text).substr(0, kTextBytesMax));
  return out.take();
}

Result<Failed> Failed::decode(ByteSpan payload) {
  Decoder in(payload);
  Failed m;
  ASSIGN_OR_RETURN(m.code, in.u32());
  if (m.code == 0 || m.code > static_cast<uint32_t>(base::StatusCode::kUnimplemented))
    return base::data_loss("a failure of no known code");
  ASSIGN_OR_RETURN(m.text, in.string(kTextBytesMax));
  RETURN_IF_ERROR(in.finish());
  return m;
}

Result<Goodbye> Goodbye::decode(ByteSpan payload) {
  RETURN_IF_ERROR(Decoder(payload).finish());
  return Goodbye{};
}

}  // namespace perdure::runtime::rpc

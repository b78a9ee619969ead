#include "runtime/transport/ucx_fabric.h"

#include <thread>

#include "runtime/transport/ucx_loop.h"

namespace perdure::runtime::transport {
namespace {

using collective::Tag;
using collective::Ticket;
using collective::Timeout;

// epoch 12 | channel 4 | step 12 | index 20 | sender 16
uint64_t wire_tag(base::Epoch epoch, Tag tag, base::Rank sender) {
  CHECK_LT(tag.index, 1u << 20);
  return (epoch.value() & 0xfff) << 52 | static_cast<uint64_t>(tag.channel) << 48 |
         static_cast<uint64_t>(tag.step & 0xfff) << 36 | static_cast<uint64_t>(tag.index) << 16 |
         sender.value();
}

constexpr Tag kHello{collective::Channel::kTest, 0, (1u << 20) - 1};

class UcxFabric : public collective::MeshFabric {
 public:
  explicit UcxFabric(const UcxOptions& options) : options_(options), loop_(options) {}
  ~UcxFabric() override { loop_.stop(); }

  base::Status start(std::unique_ptr<UcxPort> port) { return loop_.start(std::move(port)); }
  base::Rank rank() const override { return options_.rank; }
  uint32_t ranks() const override { return options_.ranks; }
  std::vector<std::byte> address() const override { return loop_.address(); }
  void close() override { loop_.stop(); }
  void abort(base::Status why) override { loop_.abort(std::move(why)); }
  base::Status wait(Ticket ticket, Timeout timeout) override { return loop_.wait(ticket, timeout); }

  Ticket post_send(base::Rank to, Tag tag, std::span<const std::byte> bytes) override {
    return loop_.post(OperationKind::kSend, to, wire_tag(options_.epoch, tag, options_.rank),
                      const_cast<std::byte*>(bytes.data()),
                      bytes.size());  // NOLINT: sends only read
  }
  Ticket post_receive(base::Rank from, Tag tag, std::span<std::byte> bytes) override {
    return loop_.post(OperationKind::kReceive, from, wire_tag(options_.epoch, tag, from),
                      bytes.data(), bytes.size());
  }

  base::Status connect(std::span<const std::vector<std::byte>> addresses,
                       Timeout timeout) override {
    RETURN_IF_ERROR(loop_.make_endpoints(addresses, timeout));
    std::vector<uint32_t> out(options_.ranks, options_.rank.value());
    std::vector<uint32_t> in(options_.ranks, ~0u);
    std::vector<Ticket> tickets;
    for (uint32_t r = 0; r < options_.ranks; ++r) {
      if (base::Rank(r) == options_.rank || addresses[r].empty()) continue;
      tickets.push_back(
          post_receive(base::Rank(r), kHello, std::as_writable_bytes(std::span(&in[r], 1))));
      tickets.push_back(post_send(base::Rank(r), kHello, std::as_bytes(std::span(&out[r], 1))));
    }
    base::Status result;
    for (const Ticket ticket : tickets) {  // all are waited for: they point into this frame
      const base::Status status = wait(ticket, timeout);
      if (result.is_ok()) result = status;
    }
    RETURN_IF_ERROR(result.annotate("greeting the other ranks"));
    for (uint32_t r = 0; r < options_.ranks; ++r) {
      if (base::Rank(r) != options_.rank && !addresses[r].empty() && in[r] != r) {
        return base::internal("rank " + std::to_string(in[r]) + " answers for rank " +
                              std::to_string(r));
      }
    }
    return base::Status::ok();
  }

 private:
  const UcxOptions options_;
  UcxLoop loop_;
};

UcxPortOptions port_options(const UcxOptions& options) {
  return {.transport = options.transport, .network_device = options.network_device};
}

base::Result<std::unique_ptr<collective::MeshFabric>> make_fabric(const UcxOptions& options,
                                                                  std::unique_ptr<UcxPort> port) {
  CHECK_LT(options.rank.value(), options.ranks);
  CHECK_LT(options.ranks, 1u << 16);
  auto fabric = std::make_unique<UcxFabric>(options);
  RETURN_IF_ERROR(fabric->start(std::move(port)));
  return std::unique_ptr<collective::MeshFabric>(std::move(fabric));
}

}  // namespace

base::Result<std::unique_ptr<collective::MeshFabric>> make_ucx_fabric(const UcxOptions& options) {
  ASSIGN_OR_RETURN(auto port, make_ucx_port(port_options(options)));
  return make_fabric(options, std::move(port));
}

struct UcxFabricSource::Spare {
  UcxPortOptions options;
  base::Result<std::unique_ptr<UcxPort>> port = base::not_found("not made yet");
  std::thread thread;  // joined before the port is touched
  ~Spare() {
    if (thread.joinable()) thread.join();
  }
};

UcxFabricSource::UcxFabricSource() = default;
UcxFabricSource::~UcxFabricSource() = default;

void UcxFabricSource::get_ready(const UcxPortOptions& options) {
  if (spare_ != nullptr && spare_->options == options) return;
  spare_ = std::make_unique<Spare>();
  spare_->options = options;
  spare_->thread =
      std::thread([spare = spare_.get()] { spare->port = make_ucx_port(spare->options); });
}

base::Result<std::unique_ptr<collective::MeshFabric>> UcxFabricSource::make(
    const UcxOptions& options) {
  if (spare_ == nullptr || !(spare_->options == port_options(options))) {
    return make_ucx_fabric(options);
  }
  spare_->thread.join();
  base::Result<std::unique_ptr<UcxPort>> port = std::move(spare_->port);
  spare_.reset();
  if (!port.is_ok()) return make_ucx_fabric(options);
  return make_fabric(options, std::move(port).value());
}

}  // namespace perdure::runtime::transport

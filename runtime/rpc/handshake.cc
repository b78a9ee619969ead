#include "runtime/rpc/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/rpc/wire.h"

namespace perdure::runtime::rpc {
namespace {

using base::Nanos;
using base::Result;
using base::Status;
using base::Task;

constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;

enum class Word : uint16_t { kHello = 1, kChallenge = 2, kProof = 3, kWelcome = 4 };

Status check_size(const std::vector<std::byte>& bytes, size_t expected) {
  return bytes.size() == expected ? Status::ok() : base::data_loss("a field of a wrong size");
}

struct Hello {
  static constexpr Word kWord = Word::kHello;
  PeerRole role{};
  uint32_t number = 0;
  base::Incarnation incarnation;
  std::vector<std::byte> nonce;
  template <typename V>
  void visit(V& v) {
    v(role, number, incarnation, nonce);
  }
  Status check() const { return check_size(nonce, kNonceBytes); }
};

struct Challenge {
  static constexpr Word kWord = Word::kChallenge;
  std::vector<std::byte> nonce;
  template <typename V>
  void visit(V& v) {
    v(nonce);
  }
  Status check() const { return check_size(nonce, kNonceBytes); }
};

struct Proof {
  static constexpr Word kWord = Word::kProof;
  std::vector<std::byte> mac;
  template <typename V>
  void visit(V& v) {
    v(mac);
  }
  Status check() const { return check_size(mac, kMacBytes); }
};

struct Welcome {
  static constexpr Word kWord = Word::kWelcome;
  std::vector<std::byte> mac;
  template <typename V>
  void visit(V& v) {
    v(mac);
  }
  Status check() const { return check_size(mac, kMacBytes); }
};

std::vector<std::byte> draw_nonce(base::SeededRandom& random) {
  base::Encoder out;
  for (size_t i = 0; i < kNonceBytes / 8; ++i) out.u64(random.next_u64());
  return out.take();
}

// `side` keeps a proof from being sent back as the other side's.
std::vector<std::byte> sign(const std::string& secret, std::string_view side, const Hello& hello,
                            const Challenge& challenge) {
  base::Encoder text;
  text.string("perdure handshake 2");
  text.string(side);
  text.u8(static_cast<uint8_t>(hello.role));
  text.u32(hello.number);
  text.u64(hello.incarnation.value());
  text.bytes(hello.nonce);
  text.bytes(challenge.nonce);
  std::vector<std::byte> mac(kMacBytes);
  unsigned int mac_bytes = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.bytes().data()), text.bytes().size(),
           reinterpret_cast<unsigned char*>(mac.data()), &mac_bytes);
  CHECK(made != nullptr);
  CHECK_EQ(static_cast<size_t>(mac_bytes), kMacBytes);
  return mac;
}

bool is_equal(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool is_role(PeerRole role) {
  return role == PeerRole::kAgent || role == PeerRole::kWorker || role == PeerRole::kObserver;
}

template <typename M>
Task<Status> say(MessageChannel& channel, M message, Nanos deadline) {
  Frame frame{.type = static_cast<uint16_t>(M::kWord), .stamp = {}, .payload = to_bytes(message)};
  co_return co_await channel.send(std::move(frame), deadline);
}

template <typename M>
Task<Result<M>> hear(MessageChannel& channel, Nanos deadline) {
  CO_ASSIGN_OR_RETURN(const Frame frame, co_await channel.receive(deadline, kHandshakeBytesMax));
  if (frame.type != static_cast<uint16_t>(M::kWord)) {
    co_return base::invalid_argument("a message of type " + std::to_string(frame.type) + " where " +
                                     std::to_string(static_cast<int>(M::kWord)) +
                                     " of the handshake was expected");
  }
  Result<M> message = from_bytes<M>(frame.payload);
  if (!message.is_ok()) {
    co_return base::invalid_argument("not a handshake: " + message.status().message());
  }
  co_return message;
}

Task<Status> offer(MessageChannel& channel, const std::string& secret, Hello hello,
                   Nanos deadline) {
  CO_RETURN_IF_ERROR(co_await say(channel, hello, deadline));
  CO_ASSIGN_OR_RETURN(const Challenge challenge, co_await hear<Challenge>(channel, deadline));
  Proof proof{.mac = sign(secret, "client", hello, challenge)};
  CO_RETURN_IF_ERROR(co_await say(channel, std::move(proof), deadline));
  CO_ASSIGN_OR_RETURN(const Welcome welcome, co_await hear<Welcome>(channel, deadline));
  if (!is_equal(welcome.mac, sign(secret, "server", hello, challenge))) {
    co_return base::invalid_argument("the server does not know the job's secret");
  }
  co_return Status::ok();
}

Task<Result<PeerIdentity>> accept(MessageChannel& channel, const std::string& secret,
                                  Challenge challenge, Nanos deadline) {
  CO_ASSIGN_OR_RETURN(const Hello hello, co_await hear<Hello>(channel, deadline));
  if (!is_role(hello.role)) {
    co_return base::invalid_argument("a peer of the unknown role " +
                                     std::to_string(static_cast<int>(hello.role)));
  }
  CO_RETURN_IF_ERROR(co_await say(channel, challenge, deadline));
  CO_ASSIGN_OR_RETURN(const Proof proof, co_await hear<Proof>(channel, deadline));
  if (!is_equal(proof.mac, sign(secret, "client", hello, challenge))) {
    co_return base::invalid_argument("the peer does not know the job's secret");
  }
  Welcome welcome{.mac = sign(secret, "server", hello, challenge)};
  CO_RETURN_IF_ERROR(co_await say(channel, std::move(welcome), deadline));
  co_return PeerIdentity{
      .role = hello.role, .number = hello.number, .incarnation = hello.incarnation};
}

}  // namespace

Task<Status> offer_handshake(MessageChannel& channel, const std::string& secret, PeerIdentity self,
                             base::SeededRandom& nonces, base::Clock& clock) {
  Status status = base::invalid_argument("the job has no secret");
  if (!secret.empty()) {
    Hello hello{.role = self.role,
                .number = self.number,
                .incarnation = self.incarnation,
                .nonce = draw_nonce(nonces)};
    status = co_await offer(channel, secret, std::move(hello), clock.now() + kHandshakeTimeout);
  }
  if (!status.is_ok()) channel.close();
  co_return status;
}

Task<Result<PeerIdentity>> accept_handshake(MessageChannel& channel, const std::string& secret,
                                            base::SeededRandom& nonces, base::Clock& clock) {
  Result<PeerIdentity> peer = base::invalid_argument("the job has no secret");
  if (!secret.empty()) {
    Challenge challenge{.nonce = draw_nonce(nonces)};
    peer = co_await accept(channel, secret, std::move(challenge), clock.now() + kHandshakeTimeout);
  }
  if (!peer.is_ok()) channel.close();
  co_return peer;
}

}  // namespace perdure::runtime::rpc

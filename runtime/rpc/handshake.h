#pragma once
// Both ends prove that they know the job's secret before anything else is said. The secret itself
// never travels.
//
//   client                                        server
//   Hello(role, number, incarnation, nonce c) ───►
//                            ◄─────────────────── Challenge(nonce s)
//   Proof(HMAC(secret, "client" ...)) ──────────►
//                            ◄─────────────────── Welcome(HMAC(secret, "server" ...))
//
// ... is all that was said before: role, number, incarnation, c, s.
//
// HMAC-SHA256 (libcrypto), compared in constant time. Before the proof a peer may send only small
// messages (kHandshakeBytesMax) and has kHandshakeTimeout in all. A refused peer is told nothing;
// the connection is closed.

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "runtime/rpc/message_channel.h"

namespace perdure::runtime::rpc {

enum class PeerRole : uint8_t { kAgent = 1, kWorker = 2, kObserver = 3 };

struct PeerIdentity {
  PeerRole role = PeerRole::kAgent;
  uint32_t number = 0;            // node or worker
  base::Incarnation incarnation;  // 0: it has none yet
};

inline constexpr uint32_t kHandshakeBytesMax = 256;
inline constexpr base::Nanos kHandshakeTimeout = std::chrono::seconds(5);

// Message types 1-4 of the frame belong to it. Whoever returns an error has closed the channel.
// `nonces` gives the server's and client's nonces: real programs seed it from the operating system,
// simulated ones from the world.
base::Task<base::Status> offer_handshake(MessageChannel& channel, const std::string& secret,
                                         PeerIdentity self, base::SeededRandom& nonces,
                                         base::Clock& clock);
// kInvalidArgument: wrong secret, not a handshake, unknown role. kDataLoss: another version, not
// our protocol. kDeadlineExceeded, kUnavailable: as they say.
base::Task<base::Result<PeerIdentity>> accept_handshake(MessageChannel& channel,
                                                        const std::string& secret,
                                                        base::SeededRandom& nonces,
                                                        base::Clock& clock);

}  // namespace perdure::runtime::rpc

"""Control messages as docs/formats/rpc.md says, made anew: what a stranger, or another job's agent, would send."""
import ctypes
import ctypes.util
import hashlib
import hmac
import os
import socket
import struct

AGENT, WORKER, OBSERVER = 1, 2, 3
HELLO, CHALLENGE, PROOF, WELCOME = 1, 2, 3, 4
HEADER = struct.Struct("<4sHHIIQQ")


def load_xxhash():
    """None where the library is missing."""
    name = ctypes.util.find_library("xxhash")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    library.XXH3_64bits_withSeed.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    return library


XXHASH = load_xxhash()


def frame(kind, payload, version=3, magic=b"PDRM", length=None):
    head = HEADER.pack(magic, version, kind, len(payload) if length is None else length, 0, 0, 0)
    checksum = XXHASH.XXH3_64bits_withSeed(payload, len(payload), XXHASH.XXH3_64bits(head, len(head)))
    return head + struct.pack("<Q", checksum) + payload


def blob(data):
    return struct.pack("<I", len(data)) + data


class Peer:
    """A connection to a port of a job."""

    def __init__(self, port, host="127.0.0.1", timeout_s=10):
        self.socket = socket.create_connection((host, port), timeout_s)
        self.hello = b""

    def send(self, data):
        """What comes after the other side has closed is lost."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self

    def receive(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                self.socket.close()
                raise ConnectionResetError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def receive_frame(self):
        head = self.receive(HEADER.size + 8)
        _, _, kind, length, _, _, _ = HEADER.unpack(head[:HEADER.size])
        return kind, self.receive(length)

    def say_hello(self, role, number):
        self.hello = struct.pack("<BIQ", role, number, 0) + blob(os.urandom(32))
        return self.send(frame(HELLO, self.hello))

    def proof(self, secret, side="client"):
        """For the challenge that comes."""
        kind, payload = self.receive_frame()
        assert kind == CHALLENGE, kind
        text = blob(b"perdure handshake 2") + blob(side.encode()) + self.hello + payload
        return hmac.new(secret.encode(), text, hashlib.sha256).digest()

    def shake_hands(self, role, number, secret):
        self.say_hello(role, number)
        self.send(frame(PROOF, blob(self.proof(secret))))
        return self

    def is_welcome(self):
        return self.receive_frame()[0] == WELCOME

    def rest(self):
        """What comes until the other side closes. Not closed in time: socket.timeout."""
        data = b""
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        finally:
            self.socket.close()
        return data

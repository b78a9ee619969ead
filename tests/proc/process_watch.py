"""What processes use, and what is left of them."""
import os
import time

OLD_ENOUGH_S = 5  # a process is measured from this age on: it has warmed up
DESCRIPTORS_MORE = 16
MEMORY_MORE_MB = 32
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class ProcessWatch:
    """Open descriptors and resident memory of processes over their lives."""

    def __init__(self):
        self.lives = {}  # pid: (name, [(time, descriptors, MB)])

    def sample(self, processes):
        now = time.monotonic()
        for name, pid in processes.items():
            _, samples = self.lives.setdefault(pid, (name, []))
            try:
                with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                    resident = int(file.read().split()[1]) * PAGE_MB
                samples.append((now, len(os.listdir(f"/proc/{pid}/fd")), resident))
            except (FileNotFoundError, ProcessLookupError, IndexError, PermissionError):
                continue

    def longest(self):
        """Of each role the life that lasted longest, without its first seconds."""
        best = {}
        for name, samples in self.lives.values():
            old = [s for s in samples if s[0] - samples[0][0] >= OLD_ENOUGH_S]
            if len(old) >= 2 and (name[0] not in best or span(old) > span(best[name[0]][1])):
                best[name[0]] = (name, old)
        return best

    def report(self):
        for name, samples in self.longest().values():
            (_, fds_first, mb_first), (_, fds_last, mb_last) = samples[0], samples[-1]
            print(f"{name[0]} {name[1]}: {span(samples):.0f} s, descriptors {fds_first} -> {fds_last}, "
                  f"resident {mb_first:.0f} -> {mb_last:.0f} MB", flush=True)

    def growth(self):
        grown = []
        for name, samples in self.longest().values():
            (_, fds_first, mb_first), (_, fds_last, mb_last) = samples[0], samples[-1]
            if fds_last > fds_first + DESCRIPTORS_MORE:
                grown.append(f"{name}: {fds_first} -> {fds_last} descriptors")
            if mb_last > mb_first + MEMORY_MORE_MB:
                grown.append(f"{name}: {mb_first:.0f} -> {mb_last:.0f} MB")
        return grown


def span(samples):
    return samples[-1][0] - samples[0][0]


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes_with(word):
    """{pid: command line} of those that have the word in their command line or environment, but for this one."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        line = read_bytes(f"/proc/{name}/cmdline")
        if word.encode() in line or word.encode() in read_bytes(f"/proc/{name}/environ"):
            found[int(name)] = line
    return found


def listening_ports(pids=None):
    """TCP ports that somebody, or one of these processes, listens on."""
    inodes = None if pids is None else {inode for pid in pids for inode in sockets(pid)}
    ports = set()
    for line in read_bytes("/proc/net/tcp").decode().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and (inodes is None or fields[9] in inodes):
            ports.add(int(fields[1].split(":")[1], 16))
    return ports


def sockets(pid):
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                yield target[len("socket:["):-1]
    except OSError:
        return


def shared_memory():
    return set(os.listdir("/dev/shm"))


def dead_shared_memory(before):
    """Files in /dev/shm that came after `before` and that no process maps."""
    maps = b"".join(read_bytes(f"/proc/{name}/maps") for name in os.listdir("/proc") if name.isdigit())
    return {name for name in shared_memory() - before if f"/dev/shm/{name}".encode() not in maps}

#!/usr/bin/env python3
"""Checks the rules of the style guide that a compiler does not: in seconds, with no dependency.

    tools/tidy.py            the whole tree, from anywhere in it
    tools/tidy.py --root D   another tree
    tools/tidy.py --list     the rules

Prints `file:line: rule: message` for each finding and exits with 1 when there is one. A line that must break
a rule says so, with a reason, at its end:  // tidy: allow banned-call because ...
"""

import argparse
import os
import re
import sys

LINE_MAX = 100
FUNCTION_MAX = 70
FILE_MAX = 400
TEST_FILE_MAX = 800

SOURCE_FOLDERS = ("apps", "base", "bench", "chaos", "checkpoint", "kernels", "parallel", "python",
                  "recovery", "runtime", "tests")
SOURCE_ENDINGS = (".h", ".cc", ".cu", ".cuh")

RULES = {
    "include-direction": "a folder includes only what tools/layers.txt allows it",
    "include-path": "our headers are included by their path from the root",
    "line-length": f"at most {LINE_MAX} characters",
    "function-length": f"at most {FUNCTION_MAX} lines",
    "file-length": f"at most {FILE_MAX} lines, tests {TEST_FILE_MAX}, or `// tidy: long file because ...`",
    "todo-form": "TODO(#123): what is to be done",
    "banned-call": "time, randomness, threads, files and sockets come through the seams of base/",
    "asio-include": "Asio stays in base/task.h, the async parts of base/, and the transports",
    "third-party": "each library has one file, or one folder, that includes it",
    "pragma-once": "every header has #pragma once",
    "capturing-coroutine": "a lambda with captures is no coroutine: its captures die before it does",
    "aggregate-in-await": "g++ 12 destroys a braced {.a = ...} value around or inside co_await twice: name it",
    "unbuilt-source": "every source is named in the CMakeLists.txt of its folder",
    "namespace": "the namespace is the folder: perdure::a::b",
}

# Where the real world may be touched: rule -> (pattern, prefixes of paths that may).
REAL_WORLD = ("apps/", "bench/", "tests/proc/")
BANNED = [
    ("system clock", r"\b(system_clock|steady_clock|high_resolution_clock)::now\b"
                     r"|\b(gettimeofday|clock_gettime|localtime|gmtime)\s*\(|\bstd::time\s*\(",
     ("base/posix_", "base/log.cc", "kernels/", "runtime/transport", "tests/sim/") + REAL_WORLD),
    ("sleep", r"\b(sleep_for|sleep_until)\s*\(\s*std::chrono|this_thread::sleep|\b(usleep|nanosleep)\s*\(",
     ("base/posix_", "kernels/", "runtime/transport") + REAL_WORLD),
    ("random numbers", r"\b(std::)?random_device\b|(?<![\w.>])(rand|drand48|::random)\s*\(\s*\)"
                       r"|\bsrand\s*\(|\bstd::\w+_distribution\b",
     ("kernels/",) + REAL_WORLD),
    ("library random engine", r"\bstd::(mt19937|minstd|ranlux)", ("tests/",)),
    ("environment", r"\b(secure_)?(getenv|setenv|putenv)\s*\(",
     ("base/posix_", "kernels/", "runtime/transport") + REAL_WORLD),
    ("thread", r"\bstd::(jthread|thread|async)\b(?!::id)",
     ("base/posix_", "kernels/", "runtime/transport", "tests/", "runtime/collective/") + REAL_WORLD),
    ("file", r"\b(fopen|freopen|opendir|mkstemp)\s*\(|\bstd::[io]?fstream\b|(?<![\w.>:])::open(at)?\s*\("
             r"|\bstd::filesystem\b",
     ("base/posix_", "kernels/", "runtime/transport", "checkpoint/blocks/block_file.cc",
      "checkpoint/rocksdb_", "runtime/data/token_file_mmap.cc", "tests/") + REAL_WORLD),
    ("socket", r"(?<![\w.>:])(::)?(socket|accept4|socketpair)\s*\(\s*(AF|PF)_",
     ("base/posix_", "runtime/transport", "runtime/faults/unix_", "chaos/process_") + REAL_WORLD),
]

# STYLE rule 14: include pattern -> who may.
THIRD_PARTY = [
    ("spdlog", r"spdlog/", ("base/log.cc",)),
    ("toml++", r"toml\+\+/", ("base/config_toml.cc",)),
    ("xxHash", r"xxh(ash|3|_x86dispatch)\.h", ("base/hash.cc", "kernels/")),
    ("OpenSSL", r"openssl/", ("runtime/rpc/handshake.cc",)),
    ("RocksDB", r"rocksdb/", ("checkpoint/rocksdb_", "runtime/journal_rocksdb/rocksdb_")),
    ("liburing", r"liburing\.h", ("checkpoint/blocks/uring_",)),
    ("ISA-L", r"isa-l(/|\.h)", ("checkpoint/parity/",)),
    ("CUDA", r"cuda(_\w+)?\.h|cublas\w*\.h", ("kernels/cuda/", "runtime/collective/nccl_", "bench/")),
    ("NCCL", r"nccl\.h", ("runtime/collective/nccl_", "runtime/transport/nccl_", "bench/")),
    ("UCX", r"uc[pst]/api/", ("runtime/transport/", "runtime/collective/ucx_", "bench/")),
    ("oneDNN", r"(oneapi/)?dnnl", ("kernels/", "bench/")),
]
ASIO_USERS = ("base/task.", "base/waiter.", "base/asio_impl.cc", "base/posix_clock.", "runtime/transport",
              "runtime/agent/child_process.", "runtime/faults/fault_server.", "chaos/sim_host.", "apps/", "bench/", "tests/")


class Source:
    """One file: its lines, and the same lines with comments, strings and literals blanked out."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()
        self.code = blank_comments_and_strings(self.text).split("\n")[:len(self.lines)]
        self.folder = os.path.dirname(path)
        self.is_header = path.endswith((".h", ".cuh"))


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
                   re.S)


def blank_comments_and_strings(text):
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'R" and not token.startswith("//"):
            return re.sub(r"[^\n\"']", "_", token)
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(blank, text)


class Tidy:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.layers = read_layers(os.path.join(root, "tools", "layers.txt"))

    def report(self, source, line, rule, message):
        allowed = f"tidy: allow {rule} because "
        if line <= len(source.lines) and allowed in source.lines[line - 1]:
            return
        self.findings.append((source.path, line, rule, message))

    def run(self):
        paths = sorted(find_sources(self.root))
        self.existing = set(paths)
        for path in paths:
            source = Source(self.root, path)
            for check in (self.check_lengths, self.check_functions, self.check_includes, self.check_todo,
                          self.check_banned, self.check_pragma, self.check_coroutines, self.check_namespace):
                check(source)
        self.check_unbuilt(paths)
        return sorted(set(self.findings))

    def check_lengths(self, source):
        for number, line in enumerate(source.lines, 1):
            if len(line) > LINE_MAX:
                self.report(source, number, "line-length", f"{len(line)} characters")
        is_test = source.path.startswith("tests/")
        limit = TEST_FILE_MAX if is_test else FILE_MAX
        if len(source.lines) > limit and "// tidy: long file because " not in source.text:
            self.report(source, len(source.lines), "file-length", f"{len(source.lines)} lines, at most {limit}")

    def check_functions(self, source):
        for first, last, is_function in outer_blocks(source.code):
            if is_function and last - first + 1 > FUNCTION_MAX:
                self.report(source, first, "function-length", f"{last - first + 1} lines")

    def check_includes(self, source):
        for number, line in enumerate(source.lines, 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not match:
                continue
            quote, target = match.groups()
            if re.match(r"boost/asio|boost/beast", target) and not source.path.startswith(ASIO_USERS):
                self.report(source, number, "asio-include", f"{target} in {source.path}")
            for name, pattern, users in THIRD_PARTY:
                if re.match(pattern, target) and quote == "<" and not source.path.startswith(users):
                    self.report(source, number, "third-party", f"{name} belongs to {', '.join(users)}")
            if quote == '"':
                self.check_our_include(source, number, target)

    def check_our_include(self, source, number, target):
        if target not in self.existing and target.split("/")[0] not in SOURCE_FOLDERS:
            self.report(source, number, "include-path", f'"{target}" is no path from the root')
            return
        folder = os.path.dirname(target)
        if not self.layers or folder == source.folder:
            return
        here = longest_match(source.path, self.layers)
        there = longest_match(target, self.layers)
        if here is None:
            self.report(source, number, "include-direction", f"{source.folder} is not in tools/layers.txt")
        elif there != here and not allows(self.layers[here], folder, there):
            self.report(source, number, "include-direction", f"{here} must not use {folder}")

    def check_todo(self, source):
        for number, line in enumerate(source.lines, 1):
            match = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)
            if match and not re.search(r"TODO\(#\d+\): \S", line):
                self.report(source, number, "todo-form", f"write TODO(#123): ..., not {match.group(1)}")

    def check_banned(self, source):
        for what, pattern, allowed in BANNED:
            if source.path.startswith(allowed):
                continue
            for number, line in enumerate(source.code, 1):
                if re.search(pattern, line):
                    self.report(source, number, "banned-call", f"{what}: use the seam in base/")

    def check_pragma(self, source):
        if source.is_header and "#pragma once" not in source.lines[:40]:
            self.report(source, 1, "pragma-once", "has none")

    def check_coroutines(self, source):
        code = "\n".join(source.code)
        if "co_await" not in code and "co_return" not in code:
            return
        for match in re.finditer(r"\[([^\[\]]+)\]\s*(?:\([^()]*\))?\s*(?:mutable\s*)?(?:->\s*[\w:<>, ]+\s*)?\{",
                                 code):
            before = code[:match.start()].rstrip()[-1:]
            if before.isalnum() or before in ("_", "]", ")"):
                continue  # a subscript or an attribute
            body = code[match.end():matching_brace(code, match.end() - 1)]
            if re.search(r"\bco_(await|return|yield)\b", without_lambdas(body)):
                line = code.count("\n", 0, match.start()) + 1
                self.report(source, line, "capturing-coroutine", f"captures [{match.group(1).strip()}]")
        braced = r"\bco_await\b[^;{]*\{\s*\.|\{[^{};]*\.\w+ = co_await\b"
        for match in re.finditer(braced, code):
            line = code.count("\n", 0, match.start()) + 1
            self.report(source, line, "aggregate-in-await", "give the braced value a name first")

    def check_namespace(self, source):
        if not source.folder or source.path.startswith(("apps/", "bench/", "python/")):
            return
        code = "\n".join(source.code)
        names = re.findall(r"^namespace ([\w:]+) \{", code, re.M)
        if not names:
            return
        parts = source.folder.split("/")
        wanted = "perdure::" + "::".join(parts)
        allowed = {wanted}
        if parts[0] == "tests":
            allowed = {"perdure::" + "::".join(parts[1:]), "perdure::testing", wanted, "perdure"}
            allowed |= {name for name in names if name.startswith("perdure::")}  # that of the code under test
        for number, line in enumerate(source.code, 1):
            match = re.match(r"namespace ([\w:]+) \{", line)
            if match and match.group(1).startswith("perdure") and match.group(1) not in allowed:
                self.report(source, number, "namespace", f"{match.group(1)}, not {wanted}")

    def check_unbuilt(self, paths):
        cache = {}
        for path in paths:
            if not path.endswith((".cc", ".cu")):
                continue
            folder, name = os.path.split(path)
            if not is_named(self.root, folder, name, cache):
                self.findings.append((path, 1, "unbuilt-source", f"no CMakeLists.txt names {name}"))


def find_sources(root):
    for top in SOURCE_FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if f not in ("build", "__pycache__") and not f.startswith(".")]
            for name in files:
                if name.endswith(SOURCE_ENDINGS):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def read_layers(path):
    layers = {}
    if not os.path.exists(path):
        return layers
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].strip()
            if line:
                folder, _, uses = line.partition(":")
                layers[folder.strip()] = uses.split()
    return layers


def longest_match(path, layers):
    matches = [folder for folder in layers if path.startswith(folder + "/")]
    return max(matches, key=len, default=None)


def allows(uses, folder, layer):
    if "*" in uses:
        # All but programs; tests may use what tests/ offers.
        return folder.split("/")[0] not in ("apps", "bench") and not folder.startswith("tests/sim")
    return folder in uses or layer in uses


def matching_brace(code, opening):
    depth = 0
    for match in re.finditer(r"[{}]", code[opening:]):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return opening + match.start()
    return len(code)


def without_lambdas(body):
    """The body without the bodies of lambdas inside it, which are functions of their own."""
    while True:
        match = re.search(r"\[[^\[\]]*\]\s*(\([^()]*\))?\s*(mutable\s*)?(->\s*[\w:<>, ]+\s*)?\{", body)
        if not match:
            return body
        body = body[:match.start()] + body[matching_brace(body, match.end() - 1) + 1:]


def outer_blocks(code):
    """(first line, last line, is a function) of each block that is in no other function."""
    blocks = []
    stack = []  # (line, is a function)
    inside_function = 0
    statement, statement_line = "", 0
    for number, line in enumerate(code, 1):
        if line.lstrip().startswith("#"):
            continue
        for char in line:
            if char == "{":
                is_function = inside_function == 0 and looks_like_function(statement)
                stack.append((statement_line or number, is_function))
                inside_function += is_function
                statement, statement_line = "", 0
            elif char == "}":
                if stack:
                    first, is_function = stack.pop()
                    if is_function:
                        inside_function -= 1
                        blocks.append((first, number, True))
                statement, statement_line = "", 0
            elif char == ";":
                statement, statement_line = "", 0
            else:
                if not char.isspace() and not statement_line:
                    statement_line = number
                statement += char
        statement += " "
    return blocks


def looks_like_function(statement):
    statement = re.sub(r"\b(public|private|protected)\s*:", "", statement).strip()
    if not statement or "(" not in statement:
        return False
    if re.match(r"(namespace|enum|union|extern)\b", statement):
        return False
    if re.match(r"(template\s*<.*>\s*)?(class|struct)\b", statement):
        return bool(re.search(r"\)\s*(const|noexcept|override|final|\s)*$", statement))
    return not re.search(r"=\s*$", statement)


def is_named(root, folder, name, cache):
    """Is the file named in a CMakeLists.txt of its folder or one above it?"""
    while True:
        if folder not in cache:
            path = os.path.join(root, folder, "CMakeLists.txt")
            text = ""
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            cache[folder] = set(re.findall(r"[\w./+-]+", text))
        if any(word == name or word.endswith("/" + name) for word in cache[folder]):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--list", action="store_true", help="print the rules")
    arguments = parser.parse_args()
    if arguments.list:
        for rule, text in RULES.items():
            print(f"{rule}: {text}")
        return 0
    findings = Tidy(os.path.normpath(arguments.root)).run()
    for path, line, rule, message in findings:
        print(f"{path}:{line}: {rule}: {message}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

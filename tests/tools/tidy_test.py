#!/usr/bin/env python3
"""Each rule of tools/tidy.py takes a sample that breaks it and one that keeps it."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TIDY = os.path.join(ROOT, "tools", "tidy.py")
SPEC = importlib.util.spec_from_file_location("tidy", TIDY)
tidy = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tidy)

LAYERS = """
base:
parallel: base
runtime/rpc: base
runtime/transport_tcp: base
apps: *
tests: *
"""

HEADER = "#pragma once\nnamespace perdure::{0} {{\n{1}\n}}  // namespace perdure::{0}\n"
BODY = "namespace perdure::{0} {{\n{1}\n}}  // namespace perdure::{0}\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.write("tools/layers.txt", LAYERS)
        for folder in ("base", "parallel", "runtime/rpc", "runtime/transport_tcp", "apps", "tests/base", "chaos",
                       "kernels"):
            self.write(f"{folder}/CMakeLists.txt", "add_module(x SOURCES a.cc a_test.cc posix_a.cc)\n")

    def write(self, path, text):
        full = os.path.join(self.directory.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def findings(self):
        found = tidy.Tidy(self.directory.name).run()
        return [f"{path}:{line}: {rule}: {message}" for path, line, rule, message in found]

    def expect_clean(self):
        self.assertEqual(self.findings(), [])

    def expect(self, start):
        lines = self.findings()
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(start), lines[0])

    def test_empty_tree(self):
        self.expect_clean()

    def test_line_length(self):
        self.write("base/a.h", HEADER.format("base", "// " + "x" * 97))
        self.expect_clean()
        self.write("base/a.h", HEADER.format("base", "// " + "x" * 98))
        self.expect("base/a.h:3: line-length: 101 characters")

    def test_line_length_counts_characters_not_bytes(self):
        self.write("base/a.h", HEADER.format("base", "// " + "═" * 97))
        self.expect_clean()

    def test_function_length(self):
        def function(lines):
            return BODY.format("base", "int f(int n) {\n" + "  if (n) { ++n; }\n" * (lines - 2) + "}")
        self.write("base/a.cc", function(70))
        self.expect_clean()
        self.write("base/a.cc", function(71))
        self.expect("base/a.cc:2: function-length: 71 lines")

    def test_classes_are_no_functions(self):
        body = "  int a() { return 1; }\n" * 40 + "  // more\n" * 40
        self.write("base/a.h", HEADER.format("base", "template <typename R, typename... A>\n"
                                             "class F<R(A...)> : public G<R()> {\n" + body + "};"))
        self.expect_clean()

    def test_methods_and_lambdas_in_classes(self):
        self.write("base/a.cc", BODY.format("base", "struct S {\n  void f() {\n" + "    g([] { h(); });\n" * 70 +
                                            "  }\n};"))
        self.expect("base/a.cc:3: function-length: 72 lines")

    def test_file_length(self):
        self.write("base/a.h", HEADER.format("base", "//\n" * 396))
        self.expect_clean()
        self.write("base/a.h", HEADER.format("base", "//\n" * 400))
        self.expect("base/a.h:404: file-length: 404 lines, at most 400")
        self.write("base/a.h", HEADER.format("base", "// tidy: long file because a table\n" + "//\n" * 400))
        self.expect_clean()

    def test_tests_may_be_longer(self):
        self.write("tests/base/a_test.cc", BODY.format("base", "//\n" * 700))
        self.expect_clean()
        self.write("tests/base/a_test.cc", BODY.format("base", "//\n" * 800))
        self.expect("tests/base/a_test.cc:803: file-length")

    def test_include_direction(self):
        self.write("base/a.h", HEADER.format("base", ""))
        self.write("parallel/a.h", '#include "base/a.h"\n' + HEADER.format("parallel", ""))
        self.expect_clean()
        self.write("base/a.h", '#include "parallel/a.h"\n' + HEADER.format("base", ""))
        self.expect("base/a.h:1: include-direction: base must not use parallel")

    def test_include_direction_of_the_longest_folder(self):
        self.write("runtime/rpc/a.h", HEADER.format("runtime::rpc", ""))
        self.write("runtime/transport_tcp/a.h",
                   '#include "runtime/rpc/a.h"\n' + HEADER.format("runtime::transport_tcp", ""))
        self.expect("runtime/transport_tcp/a.h:1: include-direction: "
                    "runtime/transport_tcp must not use runtime/rpc")

    def test_star_is_all_but_programs(self):
        self.write("runtime/rpc/a.h", HEADER.format("runtime::rpc", ""))
        self.write("apps/a.h", "#pragma once\n")
        self.write("tests/base/a_test.cc", '#include "runtime/rpc/a.h"\n' + BODY.format("base", ""))
        self.expect_clean()
        self.write("tests/base/a_test.cc", '#include "apps/a.h"\n' + BODY.format("base", ""))
        self.expect("tests/base/a_test.cc:1: include-direction: tests must not use apps")

    def test_a_folder_without_a_layer(self):
        self.write("base/a.h", HEADER.format("base", ""))
        self.write("chaos/a.h", '#include "base/a.h"\n' + HEADER.format("chaos", ""))
        self.expect("chaos/a.h:1: include-direction: chaos is not in tools/layers.txt")

    def test_include_path(self):
        self.write("base/a.h", HEADER.format("base", ""))
        self.write("base/a.cc", '#include "a.h"\n' + BODY.format("base", ""))
        self.expect('base/a.cc:1: include-path: "a.h" is no path from the root')

    def test_todo_form(self):
        self.write("base/a.h", HEADER.format("base", "// TODO(#12): more"))
        self.expect_clean()
        for text in ("TODO: more", "TODO(me): more", "FIXME more", "TODO(#12) more"):
            self.write("base/a.h", HEADER.format("base", "// " + text))
            self.expect("base/a.h:3: todo-form")

    def test_banned_calls(self):
        for call in ("std::chrono::steady_clock::now();", "clock_gettime(CLOCK_REALTIME, &t);",
                     "std::this_thread::sleep_for(x);", "usleep(1);", "std::random_device r;", "rand();",
                     "srand(1);", "std::uniform_int_distribution<int> d;", 'getenv("HOME");',
                     "std::thread t(f);", 'fopen("x", "r");', 'std::ifstream in("x");', 'std::filesystem::path p;',
                     'int fd = ::open("x", 0);', "::socket(AF_INET, SOCK_STREAM, 0);"):
            self.write("parallel/a.cc", BODY.format("parallel", f"void f() {{ {call} }}"))
            self.expect("parallel/a.cc:2: banned-call")
            self.write("parallel/a.cc", BODY.format("parallel", f"// {call}\n" + 'auto s = "std::thread rand() ";'))
            self.expect_clean()
            os.remove(os.path.join(self.directory.name, "parallel/a.cc"))
            self.write("base/posix_a.cc" if "rand" not in call and "distribution" not in call else "apps/a.cc",
                       f"void f() {{ {call} }}\n")
            self.expect_clean()

    def test_calls_that_only_look_banned(self):
        for call in ("files.open(path);", "world.random();", "clock.now();", "sleep_for(clock, 1_s);",
                     "std::thread::id id;", "PosixFiles::open(path);", "operand();"):
            self.write("parallel/a.cc", BODY.format("parallel", f"void f() {{ {call} }}"))
            self.expect_clean()

    def test_an_exception_gives_its_reason(self):
        line = "auto t = std::thread(f);  // tidy: allow banned-call because "
        self.write("parallel/a.cc", BODY.format("parallel", line + "it is special"))
        self.expect_clean()
        self.write("parallel/a.cc", BODY.format("parallel", line.replace(" because ", "")))
        self.expect("parallel/a.cc:2: banned-call: thread")

    def test_asio_include(self):
        for path, clean in (("base/task.h", True), ("runtime/transport_tcp/a.h", True), ("base/a.h", False),
                            ("parallel/a.h", False)):
            space = "::".join(path.split("/")[:-1])
            self.write(path, "#include <boost/asio/post.hpp>\n" + HEADER.format(space, ""))
            if clean:
                self.expect_clean()
            else:
                self.expect(f"{path}:1: asio-include")
            os.remove(os.path.join(self.directory.name, path))

    def test_third_party(self):
        self.write("base/log.cc", "#include <spdlog/spdlog.h>\n")
        self.write("base/CMakeLists.txt", "log.cc a.cc")
        self.expect_clean()
        self.write("base/a.cc", "#include <spdlog/spdlog.h>\n")
        self.expect("base/a.cc:1: third-party: spdlog belongs to base/log.cc")

    def test_pragma_once(self):
        self.write("base/a.h", "// What it is.\n" + HEADER.format("base", ""))
        self.expect_clean()
        self.write("base/a.h", BODY.format("base", ""))
        self.expect("base/a.h:1: pragma-once")

    def test_capturing_coroutine(self):
        good = ("Task<void> f(int* p) {\n  auto g = [p](int n) { return *p + n; };\n"
                "  auto h = []() -> Task<void> { co_return; };\n  p[1] = 2;\n  co_await h();\n}")
        self.write("base/a.cc", BODY.format("base", good))
        self.expect_clean()
        for capture in ("this", "&", "=, &x", "x = std::move(y)"):
            bad = f"void f() {{\n  auto g = [{capture}]() -> Task<void> {{ co_await h(); }};\n}}"
            self.write("base/a.cc", BODY.format("base", bad))
            self.expect(f"base/a.cc:3: capturing-coroutine: captures [{capture}]")

    def test_aggregate_in_await(self):
        self.write("base/a.cc", BODY.format("base", "T f() {\n  const A a = {.x = 1};\n  co_await g(a);\n}"))
        self.expect_clean()
        self.write("base/a.cc", BODY.format("base", "T f() {\n  co_await g(\n      {.x = 1});\n}"))
        self.expect("base/a.cc:3: aggregate-in-await")

    def test_unbuilt_source(self):
        self.write("base/dead.cc", BODY.format("base", ""))
        self.expect("base/dead.cc:1: unbuilt-source: no CMakeLists.txt names dead.cc")
        self.write("base/CMakeLists.txt", "add_module(base SOURCES\n  dead.cc)")
        self.expect_clean()

    def test_a_folder_above_may_name_a_source(self):
        self.write("kernels/cuda/a.cu", "namespace perdure::kernels::cuda {\n}\n")
        self.expect_clean_or_named("kernels/cuda/a.cu")
        self.write("kernels/CMakeLists.txt", "add_module(kernels SOURCES cuda/a.cu)")
        self.expect_clean()

    def expect_clean_or_named(self, path):
        # The sample folder's CMakeLists.txt names a.cc, not a.cu.
        self.expect(f"{path}:1: unbuilt-source")

    def test_namespace(self):
        self.write("runtime/rpc/a.h", HEADER.format("runtime::rpc", ""))
        self.expect_clean()
        self.write("runtime/rpc/a.h", HEADER.format("rpc", ""))
        self.expect("runtime/rpc/a.h:2: namespace: perdure::rpc, not perdure::runtime::rpc")

    def test_many_files_take_seconds(self):
        text = HEADER.format("base", "int f(int n) {\n  return n;\n}\n" * 90)
        for i in range(300):
            self.write(f"base/file{i}.h", text)
        start = time.process_time()
        self.expect_clean()
        self.assertLess(time.process_time() - start, 3.0)

    def test_exit_status_and_output(self):
        def run():
            return subprocess.run([sys.executable, TIDY, "--root", self.directory.name], capture_output=True,
                                  text=True, check=False)
        self.assertEqual((run().returncode, run().stdout), (0, ""))
        self.write("base/a.h", "")
        done = run()
        self.assertEqual((done.returncode, done.stdout), (1, "base/a.h:1: pragma-once: has none\n"))

    def test_lists_its_rules(self):
        done = subprocess.run([sys.executable, TIDY, "--list"], capture_output=True, text=True, check=True)
        self.assertIn("banned-call: ", done.stdout)


if __name__ == "__main__":
    unittest.main()

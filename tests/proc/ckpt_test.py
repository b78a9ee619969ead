"""perdure ckpt: what it says of good, unfinished, damaged and foreign folders, and its exit codes."""
import os
import re
import shutil
import subprocess
import unittest

from perdure_runs import ROOT, PerdureTest, Run

MAKE = os.environ.get("MAKE_CHECKPOINT",
                      os.path.join(ROOT, "build", "release", "tests", "checkpoint", "make_checkpoint"))

# In the file of rank 1: the header, 2 KiB of the embedding, then 9 MiB of optimizer.m in pieces of 4 MiB.
HEADER_BYTES = 4096
LARGE_BEGIN = HEADER_BYTES + 2048
PIECE_BYTES = 4 << 20


class CkptTest(PerdureTest):
    def make(self, *options, name="ckpt"):
        subprocess.run([MAKE, self.path(name), *map(str, options)], check=True, timeout=60)
        return self.path(name)

    def ckpt(self, *words, code=0):
        run = Run(["ckpt", *words])
        self.assertEqual(run.code, code, run.out + run.err)
        if code != 2:
            self.assertEqual(run.err, "", "no progress where stderr is no terminal")
        return run.out

    def refused(self, words, *parts):
        run = Run(["ckpt", *words])
        self.assertEqual(run.code, 2, run.out + run.err)
        lines = run.err.splitlines()
        self.assertEqual(len(lines), 1, run.err)
        self.assertTrue(lines[0].startswith("perdure: "), lines[0])
        for part in parts:
            self.assertIn(str(part), lines[0])
        self.assertEqual(run.out, "")

    def step_folder(self, root, step):
        (name,) = [name for name in os.listdir(root) if name.startswith(f"step-{step:012}")]
        return os.path.join(root, name)

    def rank_file(self, root, step, rank):
        return os.path.join(self.step_folder(root, step), f"rank-{rank:04}.safetensors")

    def break_manifest(self, root, step):
        path = os.path.join(self.step_folder(root, step), "MANIFEST")
        os.truncate(path, os.path.getsize(path) - 10)

    def test_ls_is_an_aligned_table(self):
        lines = self.ckpt("ls", self.make()).splitlines()
        self.assertEqual(lines[0].split(), ["step", "epoch", "size", "folder", "state"])
        self.assertEqual([line.split()[0] for line in lines[1:4]], ["100", "110", "120"])
        for line in lines[1:4]:
            self.assertRegex(line, r"^ 1[012]0      7  9\.0 MiB  step-0{9}1[012]0\.e7\.[0-9a-f]{16}  committed$")
        self.assertEqual(lines[4], "3 committed (27.0 MiB)")

    def test_ls_says_why_some_do_not_count(self):
        root = self.make("--uncommitted", 110, "--steps", "90,100,110,120")
        self.break_manifest(root, 100)
        os.truncate(self.rank_file(root, 120, 1), 100)
        out = self.ckpt("ls", root)
        self.assertRegex(out, r"(?m)^ 100 .* damaged: .*MANIFEST")
        self.assertRegex(out, r"(?m)^ 110 .* unfinished: it has no MANIFEST")
        self.assertRegex(out, r"(?m)^ 120 .* damaged: .*rank-0001.safetensors has 100 bytes")
        self.assertTrue(out.endswith("1 committed (9.0 MiB), 1 unfinished, 2 damaged\n"), out)

    def test_ls_of_a_step_that_was_saved_twice(self):
        root = self.make()
        self.make("--epoch", 8, "--steps", 120)
        self.assertRegex(self.ckpt("ls", root), r"(?m)^ 120 +7 .* committed, superseded by epoch 8$")

    def test_show(self):
        root = self.make()
        out = self.ckpt("show", root)
        for line in (r"step +120", r"epoch +7", r"attempt +[0-9a-f]{16}", r"model +llama 2 x 16",
                     r"layout +1 pipeline x 2 stages", r"size +9\.0 MiB in 2 files",
                     r"tensors +5 in 5 chunks, 1 of them tied", r"  applied_steps +120", r"  samples_consumed +7680",
                     r"  rank-0001\.safetensors +9\.0 MiB  [0-9a-f]{16}  here"):
            self.assertRegex(out, f"(?m)^{line}$")
        self.assertRegex(self.ckpt("show", root, "--step", 100), r"(?m)^step +100$")

    def test_show_tensors(self):
        out = self.ckpt("show", self.make(), "--tensors")
        for line in (r"  embedding\.weight +F32 +\[64, 16\] +\[0:32, 0:16\] +2\.0 KiB  rank-0000\.safetensors +4096",
                     r" +\[32:64, 0:16\] +2\.0 KiB  rank-0001\.safetensors +4096",
                     r"  layers\.0\.weight +BF16 +\[16, 16\] .*",
                     rf"  optimizer\.m +F32 +\[288, 8192\] .* 9\.0 MiB  rank-0001\.safetensors +{LARGE_BEGIN}",
                     r"  lm_head\.weight +F32 +\[64, 16\] +tied to embedding\.weight"):
            self.assertRegex(out, f"(?m)^{line}$")

    def test_text_of_others_does_not_drive_the_terminal(self):
        out = self.ckpt("show", self.make("--model", "llama \x1b[2J\u009b7m"))
        self.assertRegex(out, r"(?m)^model +llama \?\[2J\?7m$")

    def test_verify_good(self):
        root = self.make()
        self.assertEqual(self.ckpt("verify", root), "step 120 of epoch 7: good, 9.0 MiB in 2 files\n")
        self.assertIn("step 100 of epoch 7: good", self.ckpt("verify", root, "--step", 100))
        out = self.ckpt("verify", root, "--all")
        self.assertEqual(out.count(": good"), 3)
        self.assertTrue(out.endswith("3 of 3 are good\n"), out)

    def test_verify_names_each_bad_piece(self):
        flips = [("--flip", f"110:{where}") for where in (f"1:{LARGE_BEGIN + 5}", f"1:{LARGE_BEGIN + 2 * PIECE_BYTES}",
                                                          f"0:{HEADER_BYTES}", "0:100")]
        root = self.make(*[word for flip in flips for word in flip])
        out = self.ckpt("verify", root, "--step", 110, code=1)
        self.assertIn("step 110 of epoch 7: NOT GOOD, 4 problems\n", out)
        self.assertRegex(out, r"(?m)^  rank-0001.safetensors: tensor 'optimizer.m', piece 0 .*XXH3")
        self.assertRegex(out, r"(?m)^  rank-0001.safetensors: tensor 'optimizer.m', piece 2 .*XXH3")
        self.assertNotIn("piece 1", out)
        self.assertRegex(out, r"(?m)^  rank-0000.safetensors: tensor 'embedding.weight', piece 0 ")
        self.assertRegex(out, r"(?m)^  rank-0000.safetensors: the header")
        self.assertTrue(self.ckpt("verify", root, "--all", code=1).endswith("2 of 3 are good\n"))
        self.ckpt("verify", root)

    def test_verify_names_all_files_that_are_missing_or_of_a_wrong_size(self):
        root = self.make()
        os.remove(self.rank_file(root, 110, 0))
        with open(self.rank_file(root, 110, 1), "ab") as file:
            file.write(b"more")
        out = self.ckpt("verify", root, "--step", 110, code=1)
        self.assertRegex(out, r"(?m)^  rank-0000.safetensors: .* is missing")
        self.assertRegex(out, r"(?m)^  rank-0001.safetensors: .* bytes and should have ")
        self.assertIn("2 problems", out)

    def test_verify_does_not_pass_over_a_damaged_one_that_is_newer(self):
        root = self.make()
        self.break_manifest(root, 120)
        out = self.ckpt("verify", root, code=1)
        self.assertIn("step 110 of epoch 7: good", out)
        self.assertIn("step 120 of epoch 7: NOT GOOD", out)
        self.assertNotIn("step 100", out)

    def test_verify_of_files_that_other_nodes_have(self):
        root = self.make("--node", 3)
        self.assertNotIn("node", self.ckpt("verify", root), "it lies here too")
        os.remove(self.rank_file(root, 120, 1))
        self.assertIn("good, 6.5 KiB in 1 file; 1 file not here but on node 3", self.ckpt("verify", root))

    def test_verify_leaves_unfinished_saves_out(self):
        root = self.make("--uncommitted", 120)
        self.assertTrue(self.ckpt("verify", root, "--all").endswith("2 of 2 are good\n"))
        self.refused(["verify", root, "--step", 120], "nothing to verify", "100, 110", "unfinished")

    def test_diff(self):
        root = self.make()
        out = self.ckpt("diff", root, "--step", 100, "--with", 120, code=1)
        self.assertEqual(out, "layers.0.weight: content: 1 of 1 pieces differ, at most 512 B\n"
                              "1 difference; 4 tensors equal to the last bit\n")
        self.assertEqual(self.ckpt("diff", root, "--step", 100, "--with", 100), "equal to the last bit: 5 tensors\n")

    def test_diff_with_another_folder(self):
        root, other = self.make(), self.make("--rows", 32, name="other")
        out = self.ckpt("diff", root, "--step", 120, "--with", 120, "--other", other, code=1)
        self.assertRegex(out, r"(?m)^embedding\.weight: shape: ")
        self.refused(["diff", root, "--step", 120, "--with", 5, "--other", other], other, "100, 110, 120")
        self.refused(["diff", root, "--step", 120, "--with", 120, "--other", self.path("none")], self.path("none"))

    def test_rm(self):
        root = self.make()
        gone = self.step_folder(root, 100)
        self.assertEqual(self.ckpt("rm", root, "--step", 100), f"removed step 100 of epoch 7 (9.0 MiB): {gone}\n")
        self.assertFalse(os.path.exists(gone))
        self.refused(["rm", root, "--step", 120], "step 120", "newest", "--force")
        self.assertTrue(os.path.exists(self.rank_file(root, 120, 1)))
        self.ckpt("rm", root, "--step", 120, "--force")
        self.refused(["rm", root, "--step", 120], "no step 120", "there is step 110")

    def test_rm_of_what_is_not_good(self):
        root = self.make("--uncommitted", 100)
        self.break_manifest(root, 110)
        self.refused(["rm", root, "--step", 100], "unfinished", "--force")
        self.assertIn("(unfinished)", self.ckpt("rm", root, "--step", 100, "--force"))
        self.assertIn("damaged", self.ckpt("rm", root, "--step", 110))
        self.assertEqual(len(os.listdir(root)), 1)

    def test_rm_leaves_what_is_of_others(self):
        root = self.make()
        note = os.path.join(self.step_folder(root, 100), "notes")
        os.mkdir(note)
        self.assertIn("stays", self.ckpt("rm", root, "--step", 100))
        self.assertEqual(os.listdir(os.path.dirname(note)), ["notes"])

    def test_folders_that_hold_none(self):
        os.mkdir(self.path("empty"))
        self.write("empty-not", "")
        os.mkdir(self.path("foreign"))
        self.write("foreign/holiday.jpg", "")
        root = self.make()
        for words in (["ls"], ["show"], ["verify"], ["verify", "--all"], ["rm", "--step", 1],
                      ["diff", "--step", 1, "--with", 2]):
            command, rest = words[0], words[1:]
            self.refused([command, self.path("nowhere"), *rest], self.path("nowhere"), "not there")
            self.refused([command, self.path("empty-not"), *rest], "is a file")
            self.refused([command, self.path("empty"), *rest], self.path("empty"), "empty")
            self.refused([command, self.path("foreign"), *rest], "holiday.jpg", "right directory")
            self.refused([command, self.step_folder(root, 110), *rest], "one checkpoint", "--step 110")

    def test_a_step_that_there_is_not_lists_those_that_there_are(self):
        root = self.make()
        for words in (["show", root], ["verify", root], ["rm", root], ["diff", root, "--with", 100]):
            self.refused([*words, "--step", 7], "step 7", "100, 110, 120")

    def test_one_that_can_not_be_read_may_be_good(self):
        root = self.make()
        shutil.rmtree(self.step_folder(root, 110))
        os.remove(os.path.join(self.step_folder(root, 120), "MANIFEST"))
        os.mkdir(os.path.join(self.step_folder(root, 120), "MANIFEST"))
        self.assertRegex(self.ckpt("ls", root), r"(?m)^ 120 .* can not be read: .*MANIFEST is a directory")
        self.refused(["rm", root, "--step", 120], "may be good", "--force")
        self.refused(["show", root], "can not be told", "MANIFEST")

    def test_wrong_words(self):
        root = self.make("--steps", 100)
        for words in ([], ["ls"], ["rm", root], ["diff", root, "--step", 1], ["show", root, "--step", "x"],
                      ["show", root, "--step", -1], ["diff", root, "--step", 100, "--with", -1],
                      ["verify", root, "--all", "--step", 100]):
            run = Run(["ckpt", *words])
            self.assertEqual(run.code, 2, words)
            self.assertIn("--help", run.err)

    def test_help_has_examples(self):
        for words in ([], ["ls"], ["show"], ["verify"], ["diff"], ["rm"]):
            run = Run(["ckpt", *words, "--help"])
            self.assertEqual(run.code, 0)
            self.assertTrue(re.search(r"Examples?:\n  perdure " + " ".join(["ckpt", *words]), run.out), run.out)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The command line without a server: help, mistakes, exit codes, and models that cannot be used."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from harness import MODEL, Model, clean_environment, gimbal, main, GIMBAL

QUESTION = ["--chat", "--prompt", "What is the capital of France?", "--temperature", "0", "--kv-cache-memory", "64M"]

QUIET = ["--log-level", "error"]


class CommandLine(unittest.TestCase):
    def check(self, done, code, *parts):
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        for part in parts:
            self.assertIn(part, text)
        if code:
            self.assertEqual(done.stdout, b"")
            self.assertEqual(len(text.strip().splitlines()), 1, text)    # one clear sentence

    def test_help_of_every_command_is_made_from_its_tables(self):
        top = gimbal("--help").stdout.decode()
        for command in ("serve", "generate", "rpc", "policy", "place", "bench", "version", "api-info"):
            self.assertIn(f"  {command}", top)
            done = gimbal(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"Usage: gimbal {command}", done.stdout.decode())
            self.assertIn("--help", done.stdout.decode())
        self.assertIn("--max-num-seqs N", gimbal("serve", "--help").stdout.decode())

    def test_no_command_prints_help_and_is_a_usage_error(self):
        done = gimbal()
        self.assertEqual(done.returncode, 64)
        self.assertIn("Usage:", done.stderr.decode())

    def test_unknown_words_get_the_nearest_name(self):
        self.check(gimbal("sreve"), 64, "did you mean serve?")
        self.check(gimbal("serve", "--max-num-sequences", "3", MODEL), 64, "did you mean --max-num-seqs?")
        self.check(gimbal("generate", "--promt", "x"), 64, "did you mean --prompt?")
        self.check(gimbal("policy", "lst"), 64, "did you mean list?")

    def test_values_out_of_range_name_flag_value_and_range(self):
        self.check(gimbal("serve", MODEL, "--max-num-seqs", "0"), 64, "max_num_seqs", '"0"', "1 to 4096")
        self.check(gimbal("serve", MODEL, "--dtype", "int8"), 64, "auto|bfloat16|float32")
        self.check(gimbal("serve", MODEL, "--kv-cache-memory", "many"), 64, "kv_cache_memory")
        self.check(gimbal("serve", MODEL, env={"GIMBAL_RPC_PORT": "70000"}), 64, "environment", "65535")
        self.check(gimbal("generate", "--temperature", "-1", "--prompt", "x", MODEL), 64, "--temperature", "from 0 to 100")

    def test_ranks_that_do_not_fit_are_all_named(self):
        self.check(gimbal("serve", MODEL, *QUIET, "--data-parallel-size", 2, "--tensor-parallel-size", 2, "--expert-parallel-size", 8), 64,
                   "expert_parallel_size 8", "data_parallel_size 2", "tensor_parallel_size 2")
        self.check(gimbal("serve", MODEL, *QUIET, "-dp", 3), 64, "32 experts", "3 ranks")

    def test_kv_memory_too_small_says_what_to_raise(self):
        self.check(gimbal("serve", MODEL, *QUIET, "--kv-cache-memory", "100K"), 64, "raise kv_cache_memory", "max_num_seqs")
        self.check(gimbal("serve", MODEL, *QUIET, "--kv-cache-memory", "16M", "--max-model-len", "100000", "--max-num-seqs", 4), 64,
                   "raise kv_cache_memory", "max_model_len of 100000")

    def test_print_config_says_where_each_value_came_from_and_reads_back(self):
        with tempfile.TemporaryDirectory() as directory:
            config = pathlib.Path(directory) / "day.lua"
            config.write_text('return { max_num_seqs = 7, kv_cache_memory = "96M", max_queue = 5 }\n')
            done = gimbal("serve", "--config", config, "--max-queue", "9", "--print-config", env={"GIMBAL_SEED": "11"})
            self.check(done, 0)
            text = done.stdout.decode()
            self.assertIn(f"max_num_seqs = 7,  -- config {config}", text)
            self.assertIn("max_queue = 9,  -- command line", text)
            self.assertIn("seed = 11,  -- environment", text)
            self.assertIn("dtype = \"auto\",  -- default", text)
            again = pathlib.Path(directory) / "again.lua"
            again.write_text(text)
            back = gimbal("serve", "--config", again, "--print-config").stdout.decode()
            strip = lambda t: [line.split("  -- ")[0] for line in t.splitlines()]
            self.assertEqual(strip(back), strip(text))

    def test_config_files_with_mistakes_are_refused_by_name(self):
        with tempfile.TemporaryDirectory() as directory:
            config = pathlib.Path(directory) / "day.lua"
            for text, part in (("return { max_num_sequences = 7 }", "max_num_seqs"), ("return 7", "table"), ("return {", "day.lua"),
                               ("while true do end", "day.lua"), ("return { max_num_seqs = 0 }", "1 to 4096")):
                config.write_text(text)
                self.check(gimbal("serve", MODEL, "--config", config), 64, part)
            self.check(gimbal("serve", MODEL, "--config", directory + "/none.lua"), 64, "none.lua")

    def test_version_is_one_line_or_one_object(self):
        self.assertRegex(gimbal("version").stdout.decode(), r"^gimbal \d+\.\d+\.\d+.*\n$")
        self.assertEqual(json.loads(gimbal("version", "--json").stdout)["name"], "gimbal")

    def test_output_that_does_not_arrive_is_an_error(self):
        with open("/dev/full", "wb") as full:
            for args in (["version"], ["--help"], ["api-info"], ["generate", MODEL, *QUESTION]):
                done = gimbal(*args, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 74, args)
                self.assertIn("No space left on device", done.stderr.decode())

    def test_nobody_listening_is_unavailable(self):
        self.check(gimbal("rpc", "--socket", "/tmp/gimbal-nobody-here", "ping"), 69, "is gimbal serve running")
        self.check(gimbal("rpc", "--port", "1", "ping"), 69, "is gimbal serve")
        self.check(gimbal("rpc", "--socket", "/tmp/" + "x" * 200, "ping"), 64, "107 bytes")
        self.check(gimbal("rpc", "--socket", "/tmp/x", "ping", "{"), 64, "parameters")
        self.check(gimbal("rpc", "--socket", "/tmp/x", "ping", "[1]"), 64, "JSON object")


class Bench(unittest.TestCase):
    def test_bench_serve_writes_the_same_rows_as_a_table_and_as_json(self):
        with tempfile.TemporaryDirectory() as directory:
            done = gimbal("bench", "serve", "--rounds", "1", "--model", MODEL, "--json", f"{directory}/rows.json")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            table = done.stdout.decode()
            for row in json.loads(pathlib.Path(f"{directory}/rows.json").read_text())["rows"]:
                self.assertIn(row["name"], table)
            self.assertIn("added to each token by serving", table)
            self.assertTrue(table.splitlines()[-1].startswith("bench serve: "))


class Generate(unittest.TestCase):
    def test_only_the_text_goes_to_standard_output(self):
        done = gimbal("generate", "--model", MODEL, *QUESTION, "--max-tokens", "32")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stdout.decode(), "The capital of France is Paris.\n")
        self.assertEqual(done.stderr, b"")

    def test_the_prompt_may_come_from_standard_input(self):
        args = [a if a != QUESTION[2] else "-" for a in QUESTION]
        done = gimbal("generate", MODEL, *args, input=QUESTION[2].encode())
        self.assertEqual(done.stdout.decode(), "The capital of France is Paris.\n")

    def test_the_same_seed_gives_the_same_text_and_another_seed_another(self):
        story = lambda seed: gimbal("generate", MODEL, "--prompt", "Once upon a time", "--max-tokens", "40", "--temperature", "1", "--seed", seed,
                                    "--kv-cache-memory", "64M").stdout
        self.assertEqual(story(7), story(7))
        self.assertNotEqual(story(7), story(8))

    def test_a_model_without_tokenizer_takes_and_gives_ids(self):
        with Model() as model:
            model.remove("tokenizer.json")
            done = gimbal("generate", model.directory, "--tokens", "1 2 3", "--max-tokens", "4", "--temperature", "0", "--ignore-eos",
                          "--kv-cache-memory", "64M")
            self.assertRegex(done.stdout.decode(), r"^\d+( \d+){3}\n$")
            done = gimbal("generate", model.directory, "--prompt", "x")
            self.assertEqual(done.returncode, 65)
            self.assertIn("--tokens", done.stderr.decode())

    def test_text_that_normalizing_makes_longer_is_taken(self):
        done = gimbal("generate", MODEL, "--prompt", "\U0001d160" * 3, "--max-tokens", "2", "--temperature", "0", "--kv-cache-memory", "64M")
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_no_tokens_to_generate_is_a_mistake(self):
        for value, part in (("0", "at least 1"), ("-1", "--max-tokens"), ("9223372036854775808", "--max-tokens"), ("1.5", "--max-tokens")):
            done = gimbal("generate", MODEL, "--prompt", "x", "--max-tokens", value, "--kv-cache-memory", "64M")
            self.assertEqual(done.returncode, 64, done.stderr.decode())
            self.assertIn(part, done.stderr.decode())

    def test_weights_that_are_no_numbers_end_the_request_not_the_program(self):
        with Model() as model:
            model.edit_data("model.norm.weight", lambda data: b"\xff\x7f" * (len(data) // 2))
            done = gimbal("generate", model.directory, *QUESTION)
            self.assertEqual(done.returncode, 70)
            self.assertIn("damaged weights", done.stderr.decode())

    def test_wrong_prompts_are_refused_with_figures(self):
        for args, part in ((["--prompt", ""], "no prompt"), (["--tokens", "1 x"], "token ids"), (["--tokens", "4096"], "4096"),
                           (["--tokens", "-5"], "token ids"), (["--tokens", "1 " * 3000], "3000 tokens")):
            done = gimbal("generate", MODEL, *args, "--kv-cache-memory", "64M")
            self.assertIn(done.returncode, (64, 65), done.stderr.decode())
            self.assertIn(part, done.stderr.decode())
            self.assertEqual(done.stdout, b"")


class BadModels(unittest.TestCase):
    """Each broken model is one sentence naming the file, and exit code 65."""

    def refused(self, directory, *parts, code=65):
        done = gimbal("serve", directory, "--kv-cache-memory", "64M", "--socket", "/tmp/gimbal-never-made", "--log-level", "error")
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        for part in parts:
            self.assertIn(part, text)
        self.assertNotIn("Sanitizer", text)

    def test_directories_that_are_none(self):
        self.refused("/nonexistent/model", "/nonexistent/model", "No such file or directory")
        self.refused(MODEL / "config.json", "is not a directory")
        self.refused("", "model directory", code=64)
        with tempfile.TemporaryDirectory() as empty:
            self.refused(empty, "config.json")

    def test_a_directory_that_may_not_be_read(self):
        with Model() as model:
            as_nobody = {}
            if os.getuid() == 0:    # root may read anything: be somebody else
                as_nobody["preexec_fn"] = lambda: os.setuid(65534)
            os.chmod(model.directory, 0)
            try:
                done = subprocess.run([GIMBAL, "serve", str(model.directory)], capture_output=True, env=clean_environment(), **as_nobody)
            except PermissionError:
                self.skipTest("the binary lies where nobody else may run it")
            finally:
                os.chmod(model.directory, 0o700)
            self.assertEqual(done.returncode, 65, done.stderr.decode())
            self.assertIn("Permission denied", done.stderr.decode())

    def test_config_with_missing_or_absurd_fields(self):
        def without(key):
            return lambda config: config.pop(key)

        def with_value(key, value):
            return lambda config: config.__setitem__(key, value)

        cases = [(without("hidden_size"), "hidden_size"), (with_value("architectures", 7), "architectures"),
                 (with_value("hidden_size", -1), "hidden_size"), (with_value("hidden_size", 2 ** 63), "config.json"),
                 (with_value("num_hidden_layers", 10 ** 9), "num_hidden_layers"), (with_value("num_experts_per_tok", 33), "num_experts_per_tok"),
                 (with_value("architectures", ["LlamaForCausalLM"]), "LlamaForCausalLM"), (with_value("vocab_size", "many"), "vocab_size"),
                 (with_value("hidden_act", "gelu"), "hidden_act"), (with_value("rope_scaling", {"rope_type": "dynamic", "factor": 2}), "dynamic"),
                 (with_value("num_key_value_heads", 3), "num_key_value_heads")]
        for change, part in cases:
            with self.subTest(part), Model() as model:
                model.edit_json("config.json", change)
                self.refused(model.directory, "config.json", part)

    def test_generation_config_that_no_request_could_have(self):
        for key, value in (("temperature", 101), ("top_p", 0), ("top_k", 2 ** 31 - 1), ("min_p", 2), ("repetition_penalty", 50), ("eos_token_id", 4096),
                           ("eos_token_id", [-1]), ("do_sample", "yes")):
            with self.subTest(key), Model() as model:
                model.edit_json("generation_config.json", lambda config: config.__setitem__(key, value))
                self.refused(model.directory, "generation_config.json", key)

    def test_config_that_is_no_json(self):
        for data in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100000, b'{"hidden_size": 1, "hidden_size": 2}'):
            with self.subTest(data[:10]), Model() as model:
                model.write("config.json", data)
                self.refused(model.directory, "config.json")

    def test_safetensors_with_a_broken_header(self):
        good = (MODEL / "model.safetensors").read_bytes()
        cases = {"empty": b"", "short": good[:4], "only a length": good[:8], "cut in the header": good[:200],
                 "length beyond the file": struct.pack("<Q", 2 ** 40) + good[8:], "length near 2^64": struct.pack("<Q", 2 ** 64 - 1) + good[8:],
                 "length 0": struct.pack("<Q", 0) + good[8:], "no JSON": good[:8] + b"x" + good[9:]}
        for name, data in cases.items():
            with self.subTest(name), Model() as model:
                model.write("model.safetensors", data)
                self.refused(model.directory, "model.safetensors")

    def test_safetensors_whose_header_lies(self):
        name = "model.norm.weight"

        def set_field(key, value):
            return lambda header: header[name].__setitem__(key, value)

        def overlap(header):
            other = next(k for k in header if k not in (name, "__metadata__") and header[k]["shape"] == header[name]["shape"])
            header[name]["data_offsets"] = header[other]["data_offsets"]

        cases = {"dtype unknown": set_field("dtype", "Q7"), "dtype of other width": set_field("dtype", "F32"),
                 "shape overflow": set_field("shape", [2 ** 62, 2 ** 62]), "negative shape": set_field("shape", [-1]),
                 "offsets swapped": lambda h: h[name].__setitem__("data_offsets", h[name]["data_offsets"][::-1]),
                 "offsets beyond the file": lambda h: h[name].__setitem__("data_offsets", [2 ** 40, 2 ** 40 + 512]),
                 "offsets overlap": overlap, "entry is no object": lambda h: h.__setitem__(name, 7)}
        for case, change in cases.items():
            with self.subTest(case), Model() as model:
                model.edit_tensors(change)
                self.refused(model.directory, "model.safetensors", name)

    def test_a_file_shorter_than_its_header_says(self):
        with Model() as model:
            model.edit_tensors(lambda header: None, cut=-1000)
            self.refused(model.directory, "model.safetensors")

    def test_missing_unexpected_and_misshapen_tensors_are_listed_by_name(self):
        with Model() as model:
            model.edit_tensors(lambda h: h.__setitem__("model.extra.weight", h.pop("model.norm.weight")))
            self.refused(model.directory, "model.extra.weight", "model.norm.weight")
        with Model() as model:
            model.edit_json("config.json", lambda c: c.__setitem__("moe_intermediate_size", 32))
            self.refused(model.directory, "mlp.experts.0")

    def test_tokenizers_that_cannot_be_used(self):
        def far_id(tree):
            tree["model"]["vocab"]["far"] = 2 ** 31

        def negative_id(tree):
            tree["model"]["vocab"]["minus"] = -1

        def beyond_vocabulary(tree):
            tree["added_tokens"].append(dict(tree["added_tokens"][0], id=70000, content="<|far|>"))

        for change in (far_id, negative_id, beyond_vocabulary, lambda t: t.pop("model"), lambda t: t["model"].pop("vocab"),
                       lambda t: t["model"].__setitem__("type", "Unigram"), lambda t: t["model"]["merges"].append("a")):
            with self.subTest(getattr(change, "__name__", "")), Model() as model:
                model.edit_json("tokenizer.json", change)
                self.refused(model.directory, "tokenizer.json")
        with Model() as model:
            model.write("tokenizer.json", b"{")
            self.refused(model.directory, "tokenizer.json")

    def test_policies_and_templates_that_do_not_exist(self):
        for flag in ("--policy-select", "--policy-order", "--chat-template"):
            done = gimbal("serve", MODEL, flag, "nothing_of_the_kind", "--kv-cache-memory", "64M", "--log-level", "error")
            self.assertIn(done.returncode, (64, 65), done.stderr.decode())
            self.assertIn("nothing_of_the_kind", done.stderr.decode())


if __name__ == "__main__":
    main()

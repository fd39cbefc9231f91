"""llama.cpp (llama-cpp-python) as a peer of `gimbal bench cpu`, on the same weights.

    peer_llama.py --probe          "peer NAME VERSION", or why there is none
    peer_llama.py DIR THREADS      converts DIR (a Qwen3-MoE checkpoint without tokenizer) to DIR/model.gguf once, loads it, says
                                   "ready"; then a line "prefill N" or "decode SEQUENCES STEPS" is answered with seconds

Install: CMAKE_BUILD_PARALLEL_LEVEL=2 CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python gguf numpy
"""
import json, os, struct, sys, time


def probe():
    try:
        import gguf, llama_cpp, numpy  # noqa: F401
    except ImportError as error:
        return str(error)
    return f"peer llama-cpp-python {llama_cpp.__version__}"


def read_safetensors(path):
    """{name: (dtype, shape, uint8 array)} over a memory map."""
    import numpy as np
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    header = json.loads(raw[8:8 + length].tobytes())
    base = 8 + length
    return {name: (t["dtype"], t["shape"], raw[base + t["data_offsets"][0]:base + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


class Converter:
    """Matrices go out as bfloat16, norms and routers as float32, as llama.cpp's own converter does."""

    def __init__(self, directory, out):
        import gguf
        self.config = json.load(open(f"{directory}/config.json"))
        self.tensors = read_safetensors(f"{directory}/model.safetensors")
        self.writer = gguf.GGUFWriter(out, "qwen3moe")
        self.bf16 = gguf.GGMLQuantizationType.BF16

    def float32(self, to, name):
        import numpy as np
        dtype, shape, raw = self.tensors[name]
        assert dtype == "BF16", dtype
        self.writer.add_tensor(to, (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape))

    def matrix(self, to, names):
        import numpy as np
        dtype, shape, _ = self.tensors[names[0]]
        assert dtype == "BF16", dtype
        raw = np.concatenate([self.tensors[name][2] for name in names])
        stacked = [len(names)] if len(names) > 1 else []
        self.writer.add_tensor(to, raw.reshape(*stacked, shape[0], shape[1] * 2), raw_dtype=self.bf16)

    def fields(self):
        import gguf
        c, w = self.config, self.writer
        w.add_name("generated")
        w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
        w.add_block_count(c["num_hidden_layers"])
        w.add_context_length(c["max_position_embeddings"])
        w.add_embedding_length(c["hidden_size"])
        w.add_feed_forward_length(c["intermediate_size"])
        w.add_head_count(c["num_attention_heads"])
        w.add_head_count_kv(c["num_key_value_heads"])
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
        w.add_rope_freq_base(c["rope_theta"])
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_vocab_size(c["vocab_size"])
        w.add_tokenizer_model("none")

    def layer(self, i):
        model, to = f"model.layers.{i}.", f"blk.{i}."
        self.float32(to + "attn_norm.weight", model + "input_layernorm.weight")
        self.float32(to + "ffn_norm.weight", model + "post_attention_layernorm.weight")
        self.float32(to + "attn_q_norm.weight", model + "self_attn.q_norm.weight")
        self.float32(to + "attn_k_norm.weight", model + "self_attn.k_norm.weight")
        self.float32(to + "ffn_gate_inp.weight", model + "mlp.gate.weight")
        for theirs, ours in (("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"), ("attn_output", "o")):
            self.matrix(f"{to}{theirs}.weight", [f"{model}self_attn.{ours}_proj.weight"])
        for part in ("gate", "up", "down"):
            experts = range(self.config["num_experts"])
            self.matrix(f"{to}ffn_{part}_exps.weight", [f"{model}mlp.experts.{e}.{part}_proj.weight" for e in experts])

    def run(self):
        self.fields()
        self.matrix("token_embd.weight", ["model.embed_tokens.weight"])
        self.float32("output_norm.weight", "model.norm.weight")
        self.matrix("output.weight", ["lm_head.weight"])
        for i in range(self.config["num_hidden_layers"]):
            self.layer(i)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


class Peer:
    def __init__(self, path, threads, vocab):
        import llama_cpp as lib
        import numpy as np
        self.lib, self.vocab, self.random = lib, vocab, np.random.default_rng(0)
        lib.llama_backend_init()
        model_params = lib.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(path.encode(), model_params)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 8 * 512, 2048, 512, 8
        params.n_threads = params.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.model or not self.context:
            raise SystemExit("llama.cpp does not load the model")

    def decode(self, tokens, positions, sequences, every_logit):
        lib, n = self.lib, len(tokens)
        batch = lib.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i in range(n):
            batch.token[i], batch.pos[i] = int(tokens[i]), positions[i]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequences[i]
            batch.logits[i] = 1 if every_logit or i == n - 1 else 0
        status = lib.llama_decode(self.context, batch)
        lib.llama_batch_free(batch)
        if status:
            raise SystemExit(f"llama_decode failed: {status}")

    def tokens(self, n):
        return self.random.integers(0, self.vocab, n)

    def timed(self, run):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start = time.perf_counter()
        run()
        self.lib.llama_synchronize(self.context)
        return time.perf_counter() - start

    def prefill(self, n):
        return self.timed(lambda: self.decode(self.tokens(n), range(n), [0] * n, False))

    def steps(self, sequences, steps):
        def run():
            for i in range(steps):
                self.decode(self.tokens(sequences), [i] * sequences, range(sequences), True)
        return self.timed(run)


def serve(directory, threads):
    path = f"{directory}/model.gguf"
    if not os.path.exists(path):
        Converter(directory, path + ".part").run()
        os.rename(path + ".part", path)
    peer = Peer(path, threads, json.load(open(f"{directory}/config.json"))["vocab_size"])
    peer.prefill(64)
    print("ready", flush=True)
    for line in sys.stdin:
        command, *numbers = line.split()
        seconds = peer.prefill(*map(int, numbers)) if command == "prefill" else peer.steps(*map(int, numbers))
        print(f"{seconds:.6f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        print(probe())
    elif len(sys.argv) == 3:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        raise SystemExit(__doc__)

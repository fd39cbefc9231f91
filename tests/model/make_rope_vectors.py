"""Makes rope_vectors.h: rotary frequencies as the functions of Hugging Face transformers compute them.

usage: make_rope_vectors.py MODELING_ROPE_UTILS_PY > rope_vectors.h        needs numpy

Runs the rules of transformers' own modeling_rope_utils.py on a small float32 stand-in for torch, so that neither package
has to be installed. The vectors in the repository were made from release 5.24.
"""
import json
import sys
import types

import numpy as np

BASE = dict(head_dim=16, hidden_size=64, num_attention_heads=4, max_position_embeddings=512)
CASES = [
    {"rope_theta": 10000},
    {"rope_theta": 1000000.0},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 1000000.0},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "truncate": False}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.707}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.25}},
    {"rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 64}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "beta_fast": 0, "beta_slow": 0}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 3}},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, "original_max_position_embeddings": 256},
]


class Tensor(np.ndarray):
    def to(self, *_, dtype=None, **__):
        return self.astype(dtype) if dtype else self


def stand_in_for_torch():
    torch = types.ModuleType("torch")
    torch.float = torch.float32 = np.float32
    torch.int64 = np.int64
    torch.arange = lambda *a, dtype=np.int64, **_: np.arange(*a, dtype=dtype).view(Tensor)
    torch.where = np.where
    torch.clamp = np.clip
    torch.Tensor = Tensor
    return torch


def rules(path):
    source = open(path).read().replace("from .utils import is_torch_available, logging", "")
    logging = types.SimpleNamespace(get_logger=lambda _: types.SimpleNamespace(warning=print))
    module = {"is_torch_available": lambda: True, "logging": logging, "__name__": "rope"}
    sys.modules["torch"] = stand_in_for_torch()
    exec(compile(source, path, "exec"), module)
    return module


def main():
    module = rules(sys.argv[1])
    print("/* Made by make_rope_vectors.py from Hugging Face transformers 5.24; head_dim 16. */")
    print("static const struct {\n    const char *fields;\n    double inv_freq[8], attention_factor;\n} ROPE_VECTORS[] = {")
    for case in CASES:
        config = type("Config", (module["RotaryEmbeddingConfigMixin"],), {})()
        fields = json.loads(json.dumps(case))
        config.__dict__.update(BASE, rope_parameters=fields.pop("rope_scaling", {}), rope_theta=fields.pop("rope_theta", 10000.0), **fields)
        config.standardize_rope_params()
        rule = module["ROPE_INIT_FUNCTIONS"].get(config.rope_parameters["rope_type"])
        if rule is None:
            inv_freq, factor = 1.0 / (config.rope_parameters["rope_theta"] ** (np.arange(0, 16, 2).astype(np.float32) / 16)), 1.0
        else:
            inv_freq, factor = rule(config)
        text = json.dumps(case)[1:-1].replace('"', '\\"')
        print(f'    {{"{text}",\n     {{{", ".join(f"{float(x):.9g}" for x in inv_freq)}}}, {float(factor):.17g}}},')
    print("};")


if __name__ == "__main__":
    main()

"""How many compiles tiny Hugging Face text models need for twelve (batch, sequence) pairs; are outputs eager's?

    python bench/text_sizes.py [--policy default|dynamic] [--backend NAME] [MODEL ...]

Wanted: at most 4 compiles by the default policy (static, sequence, batch, batch of one), at most 2 with dynamic=True.
mamba2 needs 7 and 4: its code branches on whether the last chunk is full, and one chunk is a special size.
Prints one line a model; exits with 1 if one needs more or differs.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import transformers
from varying_sizes import count, table

PAIRS = [(2, 16), (2, 24), (2, 12), (4, 12), (3, 20), (1, 20), (1, 9), (5, 30), (2, 7), (6, 24), (1, 28), (4, 16)]

_BASE = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=64,
)
_LLAMA = dict(_BASE, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_GPT = dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
_PAIR = dict(
    vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=2,
)  # fmt: skip
_MAMBA = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8)

# name: (model class, config class, settings)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", _BASE),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _BASE),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64),
    ),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", dict(_BASE, embedding_size=16)),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", dict(_BASE, embedding_size=16)),
    "deberta": ("DebertaModel", "DebertaConfig", dict(_BASE, relative_attention=True, pos_att_type=["c2p", "p2c"])),
    "deberta_v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        dict(_BASE, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8),
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        dict(_BASE, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    ),
    "xlnet": ("XLNetModel", "XLNetConfig", dict(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37)),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        dict(
            vocab_size=99, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
            window_size=8, max_position_embeddings=64,
        ),
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _BASE),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", dict(_GPT, rotary_dim=4)),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        dict(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=37,
            max_position_embeddings=64, word_embed_proj_dim=32,
        ),
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "mistral": ("MistralForCausalLM", "MistralConfig", dict(_LLAMA, sliding_window=8)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _LLAMA),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(_LLAMA, head_dim=8)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(_LLAMA, head_dim=8, sliding_window=8)),
    "phi": ("PhiForCausalLM", "PhiConfig", _LLAMA),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", _LLAMA),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    ),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _LLAMA),
    "mamba": ("MambaForCausalLM", "MambaConfig", _MAMBA),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", dict(_MAMBA, num_heads=8, head_dim=8, n_groups=2, chunk_size=8)),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        dict(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0),
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", _PAIR),
}  # fmt: skip


def make(name: str) -> torch.nn.Module:
    model, config, settings = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()  # type: ignore[no-any-return]


def inputs(name: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 99, (batch, length))
    given = {"input_ids": ids}
    if not name.startswith("mamba"):
        given["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
    if name in ("t5", "bart"):
        given["labels"] = ids.clone()
    return given


def run(name: str, policy: str, backend: str) -> tuple[int, int, str]:
    return count(make(name), (inputs(name, *pair) for pair in PAIRS), policy, backend)


if __name__ == "__main__":
    sys.exit(table(list(MODELS), run))

"""Models whose training step is timed: forward with a loss and backward, fp32, random weights.

`MODELS[name]() -> (module in training mode, keyword inputs)`; `step(call, module, inputs)` is one step without optimizer.
"""

import torch
import transformers as T


def gpt2():
    ids = torch.randint(0, 50000, (4, 128))
    return T.GPT2LMHeadModel(T.GPT2Config(n_layer=4)), {"input_ids": ids, "labels": ids.clone(), "use_cache": False}


def llama():
    config = T.LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=32000,
    )
    ids = torch.randint(0, 32000, (1, 64))
    return T.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids.clone(), "use_cache": False}


def resnet50():
    model = T.ResNetForImageClassification(T.ResNetConfig(num_labels=10))
    return model, {"pixel_values": torch.randn(4, 3, 96, 96), "labels": torch.randint(0, 10, (4,))}


MODELS = {"GPT-2, 4 layers": gpt2, "Llama-8": llama, "ResNet-50": resnet50}


def make(name):
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    return module.train(), inputs


def step(call, module, inputs):
    for parameter in module.parameters():
        parameter.grad = None
    loss = call(**inputs).loss
    loss.backward()
    return loss

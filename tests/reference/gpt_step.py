"""Reference numbers of a small GPT-2: one gradient, then ten AdamW steps, in double precision.

    python3 gpt_step.py gpt_step.txt gpt_step.f32      (PyTorch 1.13 or newer, CPU)

Written from the papers (Radford et al. 2019; Vaswani et al. 2017; Hendrycks and Gimpel 2016;
Loshchilov and Hutter 2019) with PyTorch's automatic differentiation and its own AdamW, and nothing
of Trireme. Weights and tokens follow integer formulas that both sides compute exactly (`pattern`,
`tokens`), so no file of inputs is needed.

gpt_step.txt: lines "loss STEP VALUE" and "norm STEP VALUE" (after STEP updates; the norm is that of
the whole gradient before clipping), then "gradient NAME COUNT" and "parameter NAME COUNT" in the
order of their float32 values in gpt_step.f32: gradients before the first update, parameters after
the last.
"""
import math
import sys

import torch

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 2, 3, 24, 20, 61
BATCH, TOKENS, STEPS = 3, 17, 10
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def pattern(number, count):
    """count multiples of 2^-16 in [-1/2, 1/2) from a linear congruence: exact in float32."""
    index = torch.arange(count, dtype=torch.int64)
    bits = ((index + 1) * 2654435761 + (number + 1) * 40503 * 65537) % 2**32 // 65536
    return (bits.double() - 32768) / 65536


def tokens(step, count):
    index = torch.arange(count, dtype=torch.int64)
    return (index * index * 7 + index * (31 + step) + 11 * step) % VOCAB


def shapes():
    yield "wte.weight", (VOCAB, WIDTH)
    yield "wpe.weight", (CONTEXT, WIDTH)
    for layer in range(LAYERS):
        h = f"h.{layer}."
        yield h + "ln_1.weight", (WIDTH,)
        yield h + "ln_1.bias", (WIDTH,)
        yield h + "attn.c_attn.weight", (3 * WIDTH, WIDTH)
        yield h + "attn.c_attn.bias", (3 * WIDTH,)
        yield h + "attn.c_proj.weight", (WIDTH, WIDTH)
        yield h + "attn.c_proj.bias", (WIDTH,)
        yield h + "ln_2.weight", (WIDTH,)
        yield h + "ln_2.bias", (WIDTH,)
        yield h + "mlp.c_fc.weight", (4 * WIDTH, WIDTH)
        yield h + "mlp.c_fc.bias", (4 * WIDTH,)
        yield h + "mlp.c_proj.weight", (WIDTH, 4 * WIDTH)
        yield h + "mlp.c_proj.bias", (WIDTH,)
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)


def initial_parameters():
    parameters = {}
    for number, (name, shape) in enumerate(shapes()):
        value = pattern(number, math.prod(shape)).reshape(shape)
        if ".ln_" in name or name.startswith("ln_f"):
            value = value / 4 + (1 if name.endswith("weight") else 0)
        else:
            value = value / 2
        parameters[name] = value.requires_grad_()
    return parameters


def norm(x, p, name):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    return torch.einsum("...i,oi->...o", x, p[name + ".weight"]) + p[name + ".bias"]


def gelu(y):
    return 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))


def attention(x, p, name):
    batch, length, width = x.shape
    q, k, v = linear(x, p, name + ".c_attn").split(width, dim=-1)
    split = lambda a: a.reshape(batch, length, HEADS, width // HEADS)
    scores = torch.einsum("bqhd,bkhd->bhqk", split(q), split(k)) / math.sqrt(width // HEADS)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    mixed = torch.einsum("bhqk,bkhd->bqhd", weights, split(v)).reshape(batch, length, width)
    return linear(mixed, p, name + ".c_proj")


def logits(p, ids):
    x = p["wte.weight"][ids] + p["wpe.weight"][: ids.shape[1]]
    for layer in range(LAYERS):
        h = f"h.{layer}."
        x = x + attention(norm(x, p, h + "ln_1"), p, h + "attn")
        x = x + linear(gelu(linear(norm(x, p, h + "ln_2"), p, h + "mlp.c_fc")), p, h + "mlp.c_proj")
    return norm(x, p, "ln_f") @ p["wte.weight"].T


def loss_of_step(p, step):
    """Mean over all targets but the ignored one: the first of the second sample."""
    ids = tokens(step, BATCH * (TOKENS + 1)).reshape(BATCH, TOKENS + 1)
    log_probabilities = torch.log_softmax(logits(p, ids[:, :-1]), dim=-1)
    losses = -log_probabilities.gather(-1, ids[:, 1:, None]).squeeze(-1)
    counted = torch.ones(BATCH, TOKENS, dtype=torch.double)
    counted[1, 0] = 0
    return (losses * counted).sum() / counted.sum()


def main(text_path, binary_path):
    p = initial_parameters()
    groups = [
        {"params": [v for v in p.values() if v.dim() == 2], "weight_decay": DECAY},
        {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    lines, values = [], []
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        loss = loss_of_step(p, step)
        loss.backward()
        total = math.sqrt(sum(float((v.grad**2).sum()) for v in p.values()))
        lines += [f"loss {step} {float(loss):.17g}", f"norm {step} {total:.17g}"]
        if step == 0:
            for name, v in p.items():
                lines.append(f"gradient {name} {v.numel()}")
                values.append(v.grad.reshape(-1).clone())
        if step == STEPS:
            break
        for v in p.values():
            v.grad *= min(1.0, CLIP / total)
        optimizer.step()
    for name, v in p.items():
        lines.append(f"parameter {name} {v.numel()}")
        values.append(v.detach().reshape(-1))
    with open(text_path, "w") as file:
        file.write("\n".join(lines) + "\n")
    torch.cat(values).float().numpy().astype("<f4").tofile(binary_path)


torch.set_default_dtype(torch.double)
main(*sys.argv[1:])

"""The peer of bench/train_vs_torch and, on a GPU, of tests/gpu/run: the same GPT-2 in PyTorch, written as its users would
for speed (fused AdamW, scaled_dot_product_attention, autocast for bf16). Prints one JSON line."""

import argparse
import json
import os
import resource
import statistics
import time

p = argparse.ArgumentParser()
p.add_argument("--layers", type=int, required=True)
p.add_argument("--heads", type=int, required=True)
p.add_argument("--width", type=int, required=True)
p.add_argument("--vocab", type=int, required=True)
p.add_argument("--batch", type=int, required=True)
p.add_argument("--context", type=int, required=True)
p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
p.add_argument("--compile", action="store_true")
p.add_argument("--threads", type=int, default=1)
p.add_argument("--steps", type=int, default=6)
p.add_argument("--ddp", action="store_true")
p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
a = p.parse_args()

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(a.threads)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(a.width)
        self.attn = nn.Linear(a.width, 3 * a.width)
        self.proj = nn.Linear(a.width, a.width)
        self.ln_2 = nn.LayerNorm(a.width)
        self.fc = nn.Linear(a.width, 4 * a.width)
        self.out = nn.Linear(4 * a.width, a.width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, a.heads, c // a.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(a.vocab, a.width)
        self.wpe = nn.Embedding(a.context, a.width)
        self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.width)
        for q in self.parameters():
            if q.dim() == 2:
                nn.init.normal_(q, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, a.vocab).float(), targets.view(-1))


model = GPT().to(a.device)
rank = 0
if a.ddp:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.parallel.DistributedDataParallel(model)
decay = [q for q in model.parameters() if q.dim() == 2]
plain = [q for q in model.parameters() if q.dim() != 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
try:
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
except (RuntimeError, TypeError):
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
step_model = torch.compile(model) if a.compile else model

seconds = []
for step in range(a.steps):
    tokens = torch.randint(0, a.vocab, (a.batch, a.context + 1), device=a.device)
    began = time.perf_counter()
    with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
        loss = step_model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    seconds.append(time.perf_counter() - began)

world = 1
if a.ddp:
    world = dist.get_world_size()
    dist.barrier()
    dist.destroy_process_group()
if rank == 0:
    measured = statistics.median(seconds[2:])
    print(
        json.dumps(
            {
                "tokens_per_second": world * a.batch * a.context / measured,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "torch": torch.__version__,
            }
        )
    )

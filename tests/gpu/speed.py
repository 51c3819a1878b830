"""Steps of tests/gpu/run that measure. Each returns what the report holds of it."""

import json
import os
import statistics
import sys

from machine import SOURCE
from steps import DATASHEET_BF16, MODELS, Failed, Skipped, last_lines, train_some

MARKS = {  # what is hoped for on one H200
    "124M": ("GPT-2 124M, bf16", 450e3, "tokens/s"),
    "1558M": ("GPT-2 1558M, bf16", 47e3, "tokens/s"),
    "memory": ("memory-bound kernels, the slowest", 0.9, "of a copy"),
}


def rows_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def device_speed(machine, group):
    size = "tiny" if machine.rehearse else "full"
    return rows_of(machine.run([machine.program("bench/device_speed"), "cuda", size, group], log="speed.log"))


def memory(machine):
    rows = device_speed(machine, "memory")
    copy = next(r["gb_per_s"] for r in rows if r["name"] == "copy")
    for row in rows:
        row["of_a_copy"] = row["gb_per_s"] / copy
    machine.facts["memory_rows"] = rows
    return {"rows": rows, "copy_gb_per_s": copy, "slowest_of_a_copy": min(r["of_a_copy"] for r in rows)}


def products(machine):
    """The best product of all is what the others are a part of."""
    rows = device_speed(machine, "matmul")
    best = max(r["tflop_per_s"] for r in rows)
    machine.facts["best_product"] = best * 1e12
    for row in rows:
        row["of_best_product"] = row["tflop_per_s"] / best
    machine.facts["product_rows"] = rows
    return {"rows": rows, "best_tflop_per_s": best}


def attention(machine):
    rows = device_speed(machine, "attention")
    best = machine.facts.get("best_product")
    for row in rows:
        row["of_best_product"] = row["tflop_per_s"] * 1e12 / best if best else None
    machine.facts["attention_rows"] = rows
    return {"rows": rows}


def fourier(machine):
    return {"rows": device_speed(machine, "fft")}


# --- training


def datasheet_peak(machine):
    name = machine.facts.get("name", "")
    return next((v for k, v in DATASHEET_BF16.items() if k in name), None)


def mean_split(steps):
    whole = sum(s["step_seconds"] for s in steps)
    return {k: sum(s[k] for s in steps) / whole for k in ("compute_seconds", "communication_seconds", "data_seconds")}


def throughput(machine, model, name, global_batch, microbatch, n_steps):
    folder = os.path.join(machine.work, "jobs")
    header, steps = train_some(machine, folder, model, f"speed-{name}", n_steps, "device=cuda", "train.precision=bf16",
                               f"train.global_batch={global_batch}", f"train.microbatch={microbatch}")
    timed = steps[2:]
    rate = statistics.median(s["tokens_per_second"] for s in timed)
    flops = rate * header["flops_per_token"]
    sheet, product = datasheet_peak(machine), machine.facts.get("best_product")
    return {
        "model": name, "precision": "bf16", "global_batch": global_batch, "microbatch": microbatch,
        "context": MODELS[model]["context"], "steps_timed": len(timed), "tokens_per_second": rate,
        "step_seconds": statistics.median(s["step_seconds"] for s in timed),
        "flop_convention": header["flop_convention"], "flops_per_token": header["flops_per_token"],
        "mfu_of_datasheet": flops / sheet if sheet else None, "datasheet_peak_flops": sheet,
        "mfu_of_best_product": flops / product if product else None, "best_product_flops": product,
        "split": mean_split(timed), "losses": [s["loss"] for s in steps],
    }


def find(rows, name, shape):
    return next((r["ms"] for r in rows or [] if r["name"] == name and r["shape"].startswith(shape)), None)


def kernel_split(machine, result):
    """ms of a step of 124M by kind of kernel, each alone at the shape it has there times its calls; the rest is launches,
    waits and what the benchmark has no shape for."""
    layers, products_, memory_ = 12, machine.facts.get("product_rows"), machine.facts.get("memory_rows")
    linear = ("linear_forward", "linear_backward_input", "linear_backward_weight")
    block = [find(products_, k, f"32768 x {s} ") for k in linear for s in ("768 to 2304", "768 to 768", "768 to 3072", "3072 to 768")]
    head = [find(products_, k, "1024 x 768 to 50304 ") for k in linear]
    heads = [find(machine.facts.get("attention_rows"), k, "B 32 T 1024 H 12 D 64 bf16") for k in ("attention_forward", "attention_backward")]
    norms = [find(memory_, k, "65536 x 768 bf16") for k in ("residual_layernorm_forward", "layernorm_backward")]
    loss = [find(memory_, "cross_entropy_backward", "8192 x 50304 bf16")]
    adamw = [find(memory_, "adamw", "")]
    if None in block + head + heads + norms + loss + adamw:
        return None
    n = result["global_batch"] / result["microbatch"]
    parts = {
        "linear layers": n * layers * sum(block), "head's products": n * 32 * sum(head), "attention": n * layers * sum(heads),
        "layer norms": n * (2 * layers + 1) * sum(norms) / 2, "cross entropy": n * 4 * sum(loss),
        "adamw": sum(adamw) * 124.4e6 / (1 << 27),
    }
    parts["rest"] = 1e3 * result["step_seconds"] - sum(parts.values())
    return parts


def gpt_124m(machine):
    if machine.rehearse:
        return throughput(machine, "tiny", "tiny", 2, 1, 4)
    result = throughput(machine, "124M", "124M", 512, 32, 12)
    result["kernel_split_ms"] = kernel_split(machine, result)
    return result


def gpt_1558m(machine):
    if machine.rehearse:
        raise Skipped("needs a GPU")
    return throughput(machine, "1558M", "1558M", 64, 16, 8)


# --- PyTorch


def torch_rows(machine):
    """The same model in PyTorch, plain and compiled, and its products and attention; as far as time goes."""
    code = "import torch; print(torch.__version__, torch.cuda.is_available())"
    try:
        answer = machine.run([sys.executable, "-c", code], env=dict(os.environ)).split()
    except Failed as failure:
        raise Skipped("no PyTorch in this Python") from failure
    if answer[-1] != "True":
        raise Skipped("PyTorch sees no GPU")
    result = {"torch": answer[-2]}
    products_ = machine.run([sys.executable, os.path.join(SOURCE, "bench", "torch_products.py")], env=dict(os.environ), log="torch.log")
    result["rows"] = rows_of(products_)
    gpt = [sys.executable, os.path.join(SOURCE, "bench", "torch_gpt.py"), "--device", "cuda", "--layers", "12", "--heads", "12",
           "--width", "768", "--vocab", "50257", "--batch", "32", "--context", "1024", "--dtype", "bf16", "--steps", "12"]
    for name, more in (("plain", []), ("compiled", ["--compile"])):
        try:
            result[name] = rows_of(machine.run(gpt + more, env=dict(os.environ), log="torch.log"))[-1]["tokens_per_second"]
        except (Failed, IndexError) as failure:
            result[name] = None
            result[name + "_why"] = last_lines(str(failure), 1)
    return result

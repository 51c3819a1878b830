"""gpu.json and gpu.txt of tests/gpu/run."""

import json
import os

from speed import MARKS


def marks(steps, rehearsal):
    """name, wanted, got or None, unit."""
    results = {} if rehearsal else {s["name"]: s["results"] for s in steps if s["status"] == "ok"}
    got = {
        "124M": results.get("train 124M", {}).get("tokens_per_second"),
        "1558M": results.get("train 1558M", {}).get("tokens_per_second"),
        "memory": results.get("memory", {}).get("slowest_of_a_copy"),
    }
    return [{"name": name, "wanted": wanted, "got": got[key], "unit": unit} for key, (name, wanted, unit) in MARKS.items()]


def number(x):
    return "-" if x is None else f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def table_of(step):
    """The lines below a step's own."""
    r = step["results"]
    lines = []
    if "cases" in r:
        lines.append(f"{len(r['cases'])} cases: {', '.join(r['cases'])}")
    for row in r.get("rows", []):
        rate, unit = (row["gb_per_s"], "GB/s") if "gb_per_s" in row else (row["tflop_per_s"], "TFLOP/s")
        part = row.get("of_a_copy", row.get("of_best_product"))
        of = "" if part is None else f"{part:6.2f} of {'a copy' if 'of_a_copy' in row else 'the best product'}"
        lines.append(f"{row['name']:27} {row['shape']:32} {row['ms']:10.4f} ms {rate:9.4g} {unit:8}{of}")
    if "tokens_per_second" in r:
        lines += training(r)
    for name, value in r.items():
        if name in ("digests", "nvidia_smi", "made", "gpus", "memcheck", "racecheck", "synccheck", "initcheck", "plain", "compiled", "torch"):
            lines.append(f"{name}: {value}")
        if isinstance(value, dict) and "worst" in value:
            lines.append(f"{name}: {value['steps']} steps, largest difference {value['worst']:.2e}, bound {value['bound']:.0e}")
    return lines


def training(r):
    lines = [f"{number(r['tokens_per_second'])} tokens/s, {r['step_seconds']:.4g} s a step of {r['global_batch']} x {r['context']} "
             f"tokens in micro-batches of {r['microbatch']}, median of {r['steps_timed']}",
             f"flops: {r['flop_convention']}, {r['flops_per_token']:.4g} a token"]
    if r["mfu_of_datasheet"] is not None:
        lines.append(f"MFU {r['mfu_of_datasheet']:.3f} of the data sheet's {r['datasheet_peak_flops'] * 1e-12:.1f} TFLOP/s (dense bf16)")
    if r["mfu_of_best_product"] is not None:
        lines.append(f"MFU {r['mfu_of_best_product']:.3f} of the best product measured, {r['best_product_flops'] * 1e-12:.4g} TFLOP/s")
    lines.append("rank 0's time: " + ", ".join(f"{k.split('_')[0]} {v:.3f}" for k, v in r["split"].items()))
    parts = r.get("kernel_split_ms")
    if parts:
        lines.append("a step by kernels, each alone: " + ", ".join(f"{k} {v:.1f} ms" for k, v in parts.items()))
    return lines


def text_of(report):
    lines = [f"Trireme on a GPU{' (a rehearsal on doubles: no number here is a GPU’s)' if report['rehearsal'] else ''}, {report['date']}",
             f"commit {report['commit']}, {report['seconds']:.0f} s in all", ""]
    for step in report["steps"]:
        why = f": {step['why']}" if step["why"] else ""
        lines.append(f"{step['status']:8} {step['name']:14} {step['seconds']:6.1f} s{why}")
        lines += ["    " + line for line in table_of(step)]
    lines += ["", "marks                                        wanted          got"]
    for m in report["marks"]:
        verdict = "not measured" if m["got"] is None else "reached" if m["got"] >= m["wanted"] else "missed"
        lines.append(f"{m['name']:38} {number(m['wanted']):>12} {number(m['got']):>12} {m['unit']}  {verdict}")
    left = [s for s in report["steps"] if s["status"] != "ok"]
    lines += ["", "not done: " + (", ".join(f"{s['name']} ({s['status']})" for s in left) if left else "nothing")]
    return "\n".join(lines) + "\n"


def write(report, out):
    text = text_of(report)
    for name, body in (("gpu.json", json.dumps(report, indent=1, allow_nan=False) + "\n"), ("gpu.txt", text)):
        with open(os.path.join(out, name + ".new"), "w", encoding="utf-8") as f:
            f.write(body)
        os.replace(os.path.join(out, name + ".new"), os.path.join(out, name))
    return text

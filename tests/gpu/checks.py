"""Steps of tests/gpu/run that can find a mistake. Each returns what the report holds of it."""

import os
import re
import shutil

from steps import Failed, Skipped, last_lines, make_corpus, train


def device(machine):
    """What the machine is; without a GPU all else is pointless."""
    text = machine.run([machine.program("trireme"), "info"], log="info.log")
    gpus = [line for line in text.splitlines() if line.startswith("cuda:")]
    if not gpus:
        raise Failed("trireme info lists no GPU: " + "; ".join(line for line in text.splitlines() if line.startswith("cuda")))
    facts = {"gpus": gpus, "name": gpus[0]}
    if shutil.which("nvidia-smi") and not machine.rehearse:
        query = "name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem"
        answer = machine.run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"], log="info.log")
        facts["nvidia_smi"] = dict(zip(query.split(","), (x.strip() for x in answer.splitlines()[0].split(","))))
    machine.facts = facts
    return facts


def probes(machine):
    return {"cases": machine.run_test("tests/gpu/probe_test", "probes.log")}


def kernels(machine):
    if machine.rehearse:
        raise Skipped("a rehearsal leaves tests/cuda/backend_test to make check")
    return {"cases": machine.run_test("tests/gpu/backend_test", "kernels.log")}


def fourier(machine):
    if machine.rehearse:
        raise Skipped("a rehearsal leaves tests/cuda/fft_test to make check")
    return {"cases": machine.run_test("tests/gpu/fft_test", "fft.log")}


def corpus(machine):
    words = 3000 if machine.rehearse else 2000000
    return {"made": make_corpus(machine, os.path.join(machine.work, "jobs"), 512 if machine.rehearse else 50257, words)}


def model_of(machine):
    return "tiny" if machine.rehearse else "small"


def compare_digests(machine, ranks, name, *keys):
    folder = os.path.join(machine.work, "jobs")
    digests = {}
    for precision in ("bf16",) if machine.rehearse else ("f32", "bf16"):
        both = ["device=cuda", f"train.precision={precision}"]
        _, first = train(machine, folder, model_of(machine), f"{name}-{precision}-a", 1, *both)
        _, second = train(machine, folder, model_of(machine), f"{name}-{precision}-b", ranks, *both, *keys)
        if first != second:
            raise Failed(f"{precision}: digest {first} and then {second}")
        digests[precision] = first
    return {"digests": digests}


def repeats(machine):
    return compare_digests(machine, 1, "repeat")


def two_ranks(machine):
    return compare_digests(machine, 2, "ranks", "cuda.share=true", "parallel.transport=staged")


def far(a, b):
    """Of two numbers, relative to the second; a NaN is as far as can be."""
    distance = abs(a - b) / max(abs(b), 1e-30)
    return distance if distance == distance else float("inf")


def as_on_the_cpu(machine):
    """Losses and gradient norms of each step: 1e-5 in f32 and 1e-2 in bf16 at the shape of tests/cuda/train.sh. Steps feed
    on steps, and sums here are longer, so ten times that in f32."""
    folder = os.path.join(machine.work, "jobs")
    results = {}
    for precision, bound in (("f32", 1e-4), ("bf16", 1e-2)):
        key = f"train.precision={precision}"
        ours, _ = train(machine, folder, model_of(machine), f"gpu-{precision}", 1, key, "device=cuda")
        theirs, _ = train(machine, folder, model_of(machine), f"cpu-{precision}", 1, key, "device=cpu")
        worst = max(far(a[k], b[k]) for a, b in zip(ours, theirs) for k in ("loss", "grad_norm"))
        results[precision] = {"steps": len(ours), "worst": worst, "bound": bound,
                              "loss_gpu": [s["loss"] for s in ours], "loss_cpu": [s["loss"] for s in theirs]}
        if len(ours) != len(theirs) or worst > bound:
            raise Failed(f"{precision}: loss or gradient norm differ by {worst:.2e} of the CPU's, more than {bound:.0e}")
    return results


def sanitizer(machine):
    """NVIDIA's checkers on two steps of a tiny model: memcheck first, the others while time lasts."""
    tool = shutil.which("compute-sanitizer") or next(
        (p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if os.access(p, os.X_OK)), None)
    if machine.rehearse or tool is None:
        raise Skipped("needs a GPU" if machine.rehearse else "compute-sanitizer is not on this machine")
    folder = os.path.join(machine.work, "jobs", "sanitizer")
    make_corpus(machine, folder, 512, 3000)
    results = {}
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        if machine.left() < 5:
            results[check] = "not run: no time left"
            continue
        results[check] = run_checker(machine, tool, check, folder)
    wrong = [f"{k}: {v}" for k, v in results.items() if v.startswith("errors") and k != "initcheck"]
    if wrong:
        raise Failed("; ".join(wrong) + "; see sanitizer.log")
    return results


def run_checker(machine, tool, check, folder):
    from steps import write_job

    job = [machine.program("trireme"), "run", write_job(folder, "tiny"), f"run.dir={folder}/{check}", "device=cuda",
           "train.precision=bf16", "train.steps=2", "train.global_batch=2", "train.microbatch=2"]
    try:
        text = machine.run([tool, "--tool", check, "--error-exitcode", "86", *job], log="sanitizer.log", ok=(0, 86))
    except Failed as failure:
        return f"not run: {failure}"
    if "not supported" in text:
        raise Skipped("compute-sanitizer: " + last_lines(text, 2))
    found = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
    if found is None:
        return f"not run: no summary: {last_lines(text, 2)}"
    n = int(found.group(1) or found.group(2))
    return f"errors: {n}" if n else "clean"

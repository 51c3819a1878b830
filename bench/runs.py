"""What the benchmark scripts share: the models, running a command with its peak memory, running a train job."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {
    "124M": dict(layers=12, heads=12, width=768, vocab=50257, batch=4, context=256),
    "6x384": dict(layers=6, heads=6, width=384, vocab=256, batch=8, context=256),
}

def measure_child(command, env, limit=None):
    """Standard output, and the largest resident set of any child so far started by this call, in MiB. None, 0 when it
    did not end within `limit` seconds and was stopped."""
    code = (
        "import resource,subprocess,sys;"
        "r=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE);"
        "sys.stdout.buffer.write(r.stdout);"
        "sys.stderr.write('RSS %d' % resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);"
        "sys.exit(r.returncode)"
    )
    child = subprocess.Popen([sys.executable, "-c", code] + command, env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # A launcher's workers may have left the group: it is asked to end them before it is killed.
        os.killpg(child.pid, signal.SIGTERM)
        time.sleep(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None, 0.0
    if child.returncode != 0:
        sys.stderr.write(out + err)
        raise SystemExit("failed: " + " ".join(command))
    return out, float(err.rsplit("RSS ", 1)[1]) / 1024


def environment(threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive", GLOO_SOCKET_IFNAME="lo")
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return env


def write_text(folder):
    with open(os.path.join(folder, "text"), "w") as f:
        f.write("".join(f"line {i}: some text to make tokens of\n" for i in range(40000)))


def run_trireme(trireme, model, dtype, ranks, threads, steps, folder):
    """Median tokens/s after two steps of warming up, peak resident MiB, and all steps' records. `folder` holds a text."""
    m = MODELS[model]
    run = os.path.join(folder, "run")
    subprocess.run(["rm", "-rf", run], check=True)
    job = os.path.join(folder, "job.yaml")
    with open(job, "w") as f:
        f.write(
            f"kind: train\nname: bench\nmodel: {{name: gpt, layers: {m['layers']}, heads: {m['heads']}, "
            f"width: {m['width']}, context: {m['context']}, vocab_size: {m['vocab']}}}\n"
            f"data: {{corpus: {os.path.join(folder, 'corpus.h5')}, text: [{os.path.join(folder, 'text')}]}}\n"
            f"train: {{steps: {steps}, global_batch: {m['batch'] * ranks}, microbatch: {m['batch']}, "
            f"precision: {dtype}, validate_samples: 1}}\nrun: {{dir: {run}}}\n"
            f"cpu: {{threads: {threads}}}\nlog: {{every: 1000000}}\n"
        )
    bind = ["--bind-to", "core"] if ranks == 2 else ["--bind-to", "none"]
    command = ["mpirun", "-n", str(ranks)] + bind + [trireme, "run", job]
    _, rss = measure_child(command, environment(threads))
    records, header = [], {}
    with open(os.path.join(run, "metrics.jsonl")) as f:
        for line in f:
            record = json.loads(line)
            if "step" in record:
                records.append(record)
            header = record.get("header", header)
    rate = statistics.median(r["tokens_per_second"] for r in records[2:])
    return rate, rss, records, header

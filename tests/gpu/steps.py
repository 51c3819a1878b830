"""What the steps of tests/gpu/run share: running programs within a limit, the journal of what happened, train jobs."""

import json
import os
import random
import signal
import subprocess
import time

# Dense bf16 of one GPU by NVIDIA's data sheets, in FLOP/s.
DATASHEET_BF16 = {"H200": 989.4e12, "H100": 989.4e12, "B200": 2250e12, "A100": 312e12}
MODELS = {
    "124M": dict(layers=12, heads=12, width=768, context=1024, vocab_size=50257),
    "1558M": dict(layers=48, heads=25, width=1600, context=1024, vocab_size=50257),
    "small": dict(layers=4, heads=4, width=256, context=256, vocab_size=50257),
    "tiny": dict(layers=1, heads=2, width=32, context=16, vocab_size=512),
}


class Failed(Exception):
    """A step that went wrong: the sentence for the report."""


class Skipped(Exception):
    """A step that could not be done here: the reason for the report."""


class Machine:
    """Where programs lie and how they are started; the time that is left of a step."""

    def __init__(self, build, out, env, mpirun, rehearse):
        self.build, self.out, self.mpirun, self.rehearse = build, out, mpirun, rehearse
        self.env = dict(os.environ, OMP_WAIT_POLICY="passive", OMPI_MCA_rmaps_base_oversubscribe="1",
                        OMPI_MCA_btl_base_warn_component_unused="0")
        for name, value in env.items():
            old = os.environ.get(name)
            self.env[name] = f"{value}:{old}" if name == "LD_LIBRARY_PATH" and old else value
        if os.geteuid() == 0:
            self.env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if rehearse:
            self.env.update(TRI_DOUBLE_PROTECT="0", OMP_NUM_THREADS="1")
        self.deadline = 0.0
        self.work = None  # a folder for files that no one keeps
        self.facts = {}

    def program(self, name):
        doubles = {"trireme": "tests/cuda/trireme_on_doubles", "bench/device_speed": "tests/cuda/device_speed_on_doubles"}
        for test in ("backend_test", "fft_test", "probe_test"):
            doubles["tests/gpu/" + test] = "tests/cuda/" + test
        path = os.path.join(self.build, doubles[name] if self.rehearse else name)
        if not os.access(path, os.X_OK):
            raise Failed(f"{path} was not built")
        return path

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, cwd=None, env=None, log=None, ok=(0,)):
        """Standard output and error together; ends the whole group when the step's time is over."""
        name = os.path.basename(command[0])
        child = subprocess.Popen(command, cwd=cwd, env=env or self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, errors="replace", start_new_session=True)
        try:
            text, _ = child.communicate(timeout=max(self.left(), 1))
            late = False
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            text, _ = child.communicate()
            late = True
        if log:
            with open(os.path.join(self.out, log), "a", encoding="utf-8") as f:
                f.write(f"$ {' '.join(command)}\n{text}\n")
        if late:
            raise Failed(f"{name} did not end in the step's time; its last lines: {last_lines(text)}")
        if child.returncode not in ok:
            raise Failed(f"{name} ended with code {child.returncode}: {last_lines(text)}")
        return text

    def run_test(self, name, log):
        """A test program: the names of its cases."""
        text = self.run([self.program(name)], log=log, ok=(0, 1))
        bad = [line for line in text.splitlines() if line.startswith("not ok")]
        cases = [line[3:] for line in text.splitlines() if line.startswith("ok ")]
        if bad or not cases:
            raise Failed("; ".join(bad[:5]) or f"{name} said nothing: {last_lines(text)}")
        return cases


def last_lines(text, n=4):
    return " | ".join(text.strip().splitlines()[-n:])[-800:]


# --- train jobs


def write_tokenizer(folder, vocabulary):
    """An encoding of the bytes, then all pairs of letters, all threes and so on up to `vocabulary`, and its words: texts of
    those have thousands of different tokens, as real ones do."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    table = [chr(b) for b in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))]
    table += [chr(256 + i) for i in range(256 - len(table))]
    tokens, merges, last = list(table), [], list(letters)
    while len(tokens) < vocabulary:
        longer = []
        for left in last:
            for right in letters:
                if len(tokens) == vocabulary:
                    break
                tokens.append(left + right)
                merges.append(f"{left} {right}")
                longer.append(left + right)
        last = longer
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
                   "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                   "decoder": {"type": "ByteLevel"}}, f)
    return tokens[256:]


def write_text(folder, words, n):
    draw = random.Random(1)
    with open(os.path.join(folder, "text"), "w", encoding="ascii") as f:
        for _ in range(0, n, 16):
            f.write("\n".join(draw.choices(words, k=16)) + "\n")


def make_corpus(machine, folder, vocabulary, n_words):
    """corpus.h5 in `folder`: words of that encoding in a random order, one a line."""
    os.makedirs(folder, exist_ok=True)
    words = write_tokenizer(folder, vocabulary)
    write_text(folder, words, n_words)
    text = machine.run([machine.program("trireme"), "data", "tokenize", os.path.join(folder, "text"), "--tokenizer",
                        os.path.join(folder, "tokenizer.json"), "--output", os.path.join(folder, "corpus.h5")], log="corpus.log")
    return last_lines(text, 1)


def write_job(folder, model):
    shape = ", ".join(f"{k}: {v}" for k, v in MODELS[model].items())
    path = os.path.join(folder, f"{model}.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"kind: train\nname: {model}\nmodel: {{name: gpt, {shape}}}\n"
                f"data: {{corpus: {os.path.join(folder, 'corpus.h5')}}}\n"
                "train: {steps: 4, global_batch: 4, microbatch: 1, lr: 3e-4, validate_samples: 2}\n"
                "log: {every: 1, peak_gflops: 1}\n")
    return path


def read_metrics(run_folder):
    header, steps = {}, []
    path = os.path.join(run_folder, "metrics.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                if not line.endswith("\n"):
                    break
                record = json.loads(line)
                header = record.get("header", header)
                if "step" in record:
                    steps.append(record)
    return header, steps


def train(machine, folder, model, name, ranks, *keys):
    """Runs a job to its end: its steps and the digest of its state."""
    run_folder = os.path.join(folder, name)
    program = [machine.program("trireme"), "run", write_job(folder, model), f"run.dir={run_folder}", *keys]
    command = program if ranks == 1 else [machine.mpirun, "-n", str(ranks), "--bind-to", "none", *program]
    text = machine.run(command, log="train.log")
    digests = [line.split()[-1] for line in text.splitlines() if line.startswith("state digest ")]
    _, steps = read_metrics(run_folder)
    if not digests or not steps:
        raise Failed(f"{name}: no digest or no steps: {last_lines(text)}")
    return steps, digests[-1]


def train_some(machine, folder, model, name, wanted, *keys):
    """Runs a job until it has done `wanted` steps and then ends it without a checkpoint: header, steps."""
    run_folder = os.path.join(folder, name)
    command = [machine.program("trireme"), "run", write_job(folder, model), f"run.dir={run_folder}", "train.steps=1000000", *keys]
    log_path = os.path.join(machine.out, "speed.log")
    with open(log_path, "a", encoding="utf-8") as log:
        child = subprocess.Popen(command, env=machine.env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        header, steps = {}, []
        try:
            while machine.left() > 0 and len(steps) < wanted and child.poll() is None:
                time.sleep(0.2)
                header, steps = read_metrics(run_folder)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if len(steps) < 3:
        with open(log_path, encoding="utf-8", errors="replace") as f:
            raise Failed(f"{name}: {len(steps)} steps in the step's time, code {child.returncode}: {last_lines(f.read())}")
    return header, steps

#include "cli/commands.h"

#include <stddef.h>

static const tri_cli_command commands[] = {
    {"run", "JOB.yaml [key.path=value …]", "do what a job file says, on all ranks",
     "Reads the job file, replaces values by those behind it, checks them all, and\n"
     "runs. On many ranks: mpirun -n N trireme run JOB.yaml. The run folder (run.dir)\n"
     "gets the resolved job.yaml, metrics.jsonl, run.log, checkpoints and loss.svg.\n"
     "SIGTERM, SIGINT and SIGUSR1 save the state at the end of the step and end the\n"
     "run with exit code 75; the same command goes on from there. Under mpirun, send\n"
     "SIGUSR1 to mpirun: after the other two it kills the ranks within a second. The\n"
     "last line is the digest of the state, the same on any number of ranks.\n"
     "`trireme help job` lists the keys.\n",
     tri_cli_run},
    {"generate", "RUN|CHECKPOINT --prompt TEXT", "continue a text with a trained model",
     "Takes the newest checkpoint of the run folder RUN, or a checkpoint inside one,\n"
     "prints the prompt and goes on from it.\n"
     "  -p, --prompt TEXT      text to go on from, at least one character\n"
     "  -n, --tokens N         tokens to add (256)\n"
     "      --temperature T    0 always takes the likeliest token; above 1 is wilder (0.8)\n"
     "      --top-k K          draw from the K likeliest tokens only; 0: from all (0)\n"
     "      --seed S           another seed is another text (0)\n"
     "When the model's context is full, it goes on from the last half of it.\n",
     tri_cli_generate},
    {"data", "tokenize TEXT… -o CORPUS | info CORPUS | encode | decode",
     "turn text into tokens and back",
     "data tokenize TEXT… --output CORPUS [--tokenizer bytes|FILE]\n"
     "                    [--validation FRACTION]\n"
     "    Turns text files, joined in their order, into one HDF5 file of tokens,\n"
     "    whole or not at all. The last FRACTION (default 0.05) of the text, from a\n"
     "    line's beginning on, is kept for validation.\n"
     "data info CORPUS\n"
     "    Prints what a corpus holds, one value a line.\n"
     "data encode [--tokenizer bytes|FILE]\n"
     "    Standard input as token numbers, one a line.\n"
     "data decode [--tokenizer bytes|FILE]\n"
     "    Token numbers of standard input as text.\n\n"
     "  -o, --output CORPUS        the file to write\n"
     "  -t, --tokenizer bytes      every byte is a token (the default)\n"
     "  -t, --tokenizer FILE       a byte-level byte-pair encoding: a tokenizer.json,\n"
     "                             a vocab.json or encoder.json with merges.txt or\n"
     "                             vocab.bpe beside it, or the folder of these\n"
     "      --validation FRACTION  0 to 0.99\n",
     tri_cli_data},
    {"checkpoint", "list FOLDER | verify PATH", "look at checkpoints and check them",
     "checkpoint list FOLDER\n"
     "    Every checkpoint of a run folder, or of a folder of checkpoints, the newest\n"
     "    first: its size, or what is wrong with its manifest or the sizes of its files.\n"
     "checkpoint verify PATH\n"
     "    Checks one checkpoint (step-…) as a run would that goes on from it: manifest,\n"
     "    sizes and digests of all files. Exit code 5 when it is damaged. Under mpirun\n"
     "    the ranks share the files.\n",
     tri_cli_checkpoint},
    {"info", "[schedule KIND --stages P --microbatches M]",
     "print libraries, device, ranks and their binding, or a pipeline schedule",
     "Prints version and libraries, then what each rank has: host, processing units,\n"
     "threads, and the device with its kernels and memory. Under mpirun, for all\n"
     "ranks of the job.\n\n"
     "info schedule KIND --stages P --microbatches M\n"
     "    Checks the table of a pipeline schedule, gpipe, 1f1b, interleaved or zb-h1,\n"
     "    and draws its timetable, with its bubble and the activations that each stage\n"
     "    keeps.\n"
     "  -p, --stages P             stages of the pipeline\n"
     "  -m, --microbatches M       micro-batches of a step\n"
     "  -v, --virtual V            chunks of a stage, at least 2 for interleaved (1)\n"
     "      --forward F            seconds that a chunk's forward takes (1)\n"
     "      --backward-input I     the half of backward for the chunk's input (1)\n"
     "      --backward-weight W    the half of backward for its parameters (1)\n"
     "      --transfer T           from one stage to the next (0)\n"
     "      --svg FILE             draws it as a picture too\n",
     tri_cli_info},
    {"report", "RUN", "draw the curves of a run",
     "Draws RUN/loss.svg and RUN/report.html, one self-contained page with loss,\n"
     "throughput, time-split and gradient-norm curves, from RUN/metrics.jsonl.\n"
     "Needs gnuplot on the PATH.\n",
     tri_cli_report},
    {"help", "[COMMAND | job]", "explain a command, or every key of the job file",
     "With the name of a command, explains its arguments and options. With `job`,\n"
     "lists every key of the job file with its type, default, range and meaning.\n",
     tri_cli_help},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const tri_cli_command *tri_cli_at(int index)
{
  return index < 0 || index >= N_COMMANDS ? NULL : &commands[index];
}

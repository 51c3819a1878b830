#!/bin/sh
# What the program says about itself: help of every command, the keys of the job file, versions; unknown commands and
# options name the nearest known one and exit with 2. None of it starts MPI.
# timeout: 60
trireme=$TRI_BUILDDIR/trireme
out=$TRI_SCRATCH/out
err=$TRI_SCRATCH/err
failed=0
# A launcher that was never there: whatever starts MPI fails with it.
export OMPI_MCA_ess=nonsense OMPI_MCA_pmix=nonsense

expect() { # name, exit code wanted, text wanted in output or error ("" for none), arguments …
  name=$1 code=$2 text=$3
  shift 3
  "$trireme" "$@" >"$out" 2>"$err"
  got=$?
  if [ $got -ne "$code" ]; then
    echo "not ok $name: exit code $got, wanted $code: $(head -n 3 "$err")"
    failed=1
  elif ! cat "$out" "$err" | grep -qF -e "$text"; then
    echo "not ok $name: no '$text' in: $(cat "$out" "$err" | head -n 5)"
    failed=1
  elif [ "$code" -eq 0 ] && [ -s "$err" ]; then
    echo "not ok $name: says on standard error: $(head -n 3 "$err")"
    failed=1
  elif [ "$code" -ne 0 ] && [ -s "$out" ]; then
    echo "not ok $name: fails, yet prints: $(head -n 3 "$out")"
    failed=1
  else
    echo "ok $name"
  fi
}

expect overview 0 "usage: trireme COMMAND"
expect overview_help 0 "usage: trireme COMMAND" help
expect overview_option 0 "usage: trireme COMMAND" --help
expect overview_letter 0 "usage: trireme COMMAND" -h
commands=$("$trireme" help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
for command in run info report help; do
  echo "$commands" | grep -qx "$command" || { echo "not ok overview_lists_$command"; failed=1; }
done
for command in $commands; do
  expect "help_$command" 0 "usage: trireme $command" help "$command"
  expect "help_option_$command" 0 "usage: trireme $command" "$command" --help
  expect "help_wins_$command" 0 "usage: trireme $command" "$command" --nonsense x y z --help
  grep -q "^\.It Cm $command" "$TRI_SRCDIR/docs/trireme.1" ||
    { echo "not ok man_page: no section on $command"; failed=1; }
done
long=$(for command in $commands; do "$trireme" help "$command"; done | tail -n +2 | awk 'length > 100' | wc -l)
[ "$long" -eq 0 ] || { echo "not ok help_lines: $long lines of more than 100 columns"; failed=1; }

expect help_job 0 "train.global_batch" help job
expect help_job_range 0 "number in (0, 1000], default 6e-4" help job
expect version 0 "trireme " --version
for library in MPI HDF5 oneDNN libcyaml libyaml Jansson PCRE2 libsodium hwloc OpenMP "built for" compiler options; do
  expect "version_$library" 0 "  $library" --version
done

expect unknown_command 2 "trireme: bad command line: unknown command rnu: did you mean run?" rnu
expect unknown_command_far 2 "unknown command xyzzyxyzzy: \`trireme help\` lists the commands" xyzzyxyzzy
expect unknown_option 2 "unknown option --versoin: did you mean --version?" --versoin
expect unknown_option_of_a_command 2 "unknown option --foo: \`trireme help run\` lists them" run --foo
expect unknown_help 2 "unknown command jbo" help jbo
expect too_many_words 2 "help wants one command" help run info
expect no_job_file 2 "run wants a job file" run
expect two_job_files 2 "found b.yaml" run a.yaml b.yaml
expect info_takes_nothing 2 "info takes no arguments but schedule KIND, found x" info x
expect report_wants_a_run 2 "report takes one run folder" report

# Ranks that would all say the same say it once.
once() { # name, text, arguments …
  name=$1 text=$2
  shift 2
  times=$(env -u OMPI_MCA_ess -u OMPI_MCA_pmix mpirun -n 2 "$trireme" "$@" 2>&1 | grep -cF -e "$text")
  [ "$times" -eq 1 ] && echo "ok $name" || { echo "not ok $name: '$text' $times times"; failed=1; }
}
once version_of_two "  HDF5" --version
once unknown_command_of_two "unknown command rnu" rnu
once help_of_two "usage: trireme run" run --help

# Output that cannot be written is an error of its own.
if [ -w /dev/full ]; then
  "$trireme" help >/dev/full 2>"$err"
  got=$?
  [ $got -eq 4 ] && grep -q "standard output cannot be written" "$err" && echo "ok full_output" ||
    { echo "not ok full_output: exit code $got"; failed=1; }
fi

# The pages that lead a reader name files that are there.
missing=$(cd "$TRI_SRCDIR" && for page in README.md CONTRIBUTING.md STYLE.md docs/reading-order.md docs/trireme.1; do
  grep -oE '(src|docs|tests|jobs)/[A-Za-z0-9_./-]*[A-Za-z0-9_]' "$page" | grep -v '^tests/.*_test$'
  grep -oE '`[a-z]+/[a-z_]+\.h`' "$page" | tr -d '`' | sed 's|^|include/trireme/|'
done | sort -u | while read -r file; do [ -e "$file" ] || echo "$file"; done)
[ -z "$missing" ] && echo "ok files_of_the_pages" || { echo "not ok files_of_the_pages:" $missing; failed=1; }

# The man page has no warnings, where there is something to ask.
if command -v groff >/dev/null; then
  warnings=$(groff -ww -mandoc -Tutf8 -z "$TRI_SRCDIR/docs/trireme.1" 2>&1)
  [ -z "$warnings" ] && echo "ok man_page" || { echo "not ok man_page: $warnings"; failed=1; }
fi
exit $failed

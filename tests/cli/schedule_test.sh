#!/bin/sh
# `trireme info schedule`: the timetable, its facts, its picture, and what it says about choices that are none.
# timeout: 60
trireme=$TRI_BUILDDIR/trireme
out=$TRI_SCRATCH/out
err=$TRI_SCRATCH/err
svg=$TRI_SCRATCH/schedule.svg
failed=0

schedule() { # arguments …
  "$trireme" info schedule "$@" >"$out" 2>"$err"
  got=$?
}
says() { # name, lines wanted …
  name=$1
  shift
  [ $got -eq 0 ] && [ ! -s "$err" ] || { echo "not ok $name: exit code $got: $(cat "$err")"; failed=1; return; }
  for text in "$@"; do
    grep -qFx -e "$text" "$out" || { echo "not ok $name: no line '$text' in:"; cat "$out"; failed=1; return; }
  done
  echo "ok $name"
}
refuses() { # name, exit code wanted, text wanted, arguments …
  name=$1 code=$2 text=$3
  shift 3
  schedule "$@"
  if [ $got -eq "$code" ] && grep -qF -e "$text" "$err" && [ ! -s "$out" ]; then
    echo "ok $name"
  else
    echo "not ok $name: exit code $got, wanted $code with '$text': $(cat "$err" "$out" | head -n 3)"
    failed=1
  fi
}

schedule 1f1b --stages 3 --microbatches 4
says one_forward_one_backward "schedule   1f1b: 3 stages, 4 micro-batches, 1 chunk a stage" "time       18 s" \
  "bubble     50.0 % of the work, 50.0 % by formula, without transfers" \
  "    0     3  F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --" \
  "    1     2  .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 -- .  ." \
  "    2     1  .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- .  .  .  ."
schedule zb-h1 -p 2 -m 10
says halves "bubble     3.3 % of the work, 3.3 % by formula, without transfers" \
  "    0     2        1  F0 F1 .  B0 W0 F2 B1 W1 F3 B2 W2 F4 B3 W3 F5 B4 W4 F6 B5 W5 F7 B6 W6 F8 B7 W7 F9 B8 W8 B9 W9"
schedule interleaved -p 2 -m 2 -v 2 --forward 2 --backward-input 1 --backward-weight 1
says chunks "cost       of a chunk: forward 2 s, backward 1 + 1 s, transfer 0 s" "a column   2 s; F forward, B backward, . idle" \
  "    0     4  F0.0 F1.0 F0.1 F1.1 .    B0.1 .    B1.1 B0.0 B1.0" "    1     3  .    F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0 ."
schedule zb-h1 -p 4 -m 2 --transfer=0.5
says no_formula "bubble     133.3 % of the work"
schedule gpipe -p 2 -m 800
says too_wide "timetable  not drawn: 2403 columns of 1 s, the most are 2000; --svg FILE draws it" "    1   800"
schedule gpipe -p 1 -m 1 --forward 0 --backward-input 0 --backward-weight 0
says no_time "schedule   gpipe: 1 stage, 1 micro-batch, 1 chunk a stage" "timetable  not drawn: no action takes any time" \
  "bubble     0.0 % of the work, 0.0 % by formula, without transfers"

# A box for each action, one behind each stage and one behind all; where each action is, in its title.
schedule zb-h1 -p 3 -m 5 --svg "$svg"
says picture "time       17 s"
boxes=$(grep -o '<rect' "$svg" | wc -l)
[ "$boxes" -eq $((3 * 5 * 3 + 3 + 1)) ] && [ "$(grep -c '<title>' "$svg")" -eq 45 ] && echo "ok picture_boxes" ||
  { echo "not ok picture_boxes: $boxes boxes"; failed=1; }
for text in "zb-h1: 3 stages, 5 micro-batches" "17 s, bubble 13.3 % of the work" ">keeps 3 + 2<" ">W4</text>" \
  "stage 1: backward (input) of micro-batch 4, chunk 0, 14 to 15 s, slot 1, weight slot 0</title>"; do
  grep -qF -e "$text" "$svg" && echo "ok picture_text" || { echo "not ok picture_text: no '$text'"; failed=1; }
done
if command -v xmllint >/dev/null; then
  xmllint --noout "$svg" && echo "ok picture_is_xml" || { echo "not ok picture_is_xml"; failed=1; }
fi

refuses no_kind 2 "info schedule wants one of gpipe, 1f1b, interleaved and zb-h1, found 0 words" --stages 2
refuses unknown_kind 2 "no schedule is called 1f2b, did you mean 1f1b" 1f2b -p 2 -m 2
refuses no_stages 2 "info schedule wants --stages" 1f1b -m 2
refuses no_microbatches 2 "info schedule wants --microbatches" 1f1b -p 2
refuses no_stage_at_all 2 "option --stages wants an integer in [1," 1f1b -p 0 -m 2
refuses one_chunk 2 "interleaved wants at least 2 chunks a stage, found 1: choose 2" interleaved -p 2 -m 2
refuses two_chunks 2 "schedule zb-h1 has 1 chunk a stage, found 2" zb-h1 -p 2 -m 2 -v 2
refuses too_long 2 "at most 5592 micro-batches, found 6000" gpipe -p 1000 -m 6000
refuses negative_time 2 "option --transfer wants a number" 1f1b -p 2 -m 2 --transfer=-1
refuses unknown_option 2 "unknown option --stage: did you mean --stages?" 1f1b --stage 2
refuses nothing_to_draw 2 "nothing to draw" gpipe -p 1 -m 1 --forward 0 --backward-input 0 --backward-weight 0 --svg "$svg"
refuses no_folder 4 "$TRI_SCRATCH/none/x.svg" gpipe -p 1 -m 1 --svg "$TRI_SCRATCH/none/x.svg"
exit $failed

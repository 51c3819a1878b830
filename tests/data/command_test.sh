#!/bin/sh
# trireme data: text to corpus and back, and wrong command lines that name what is wrong.
# timeout: 120
trireme=$TRI_BUILDDIR/trireme
reference=$TRI_SRCDIR/tests/data/reference
failed=0
cd "$TRI_SCRATCH" || exit 99

check() { # name, status of a test just made
  if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1: $(head -n 3 err 2>/dev/null)"; failed=1; fi
}

expect_error() { # name, exit code, text, arguments …
  name=$1 code=$2 text=$3
  shift 3
  "$trireme" data "$@" >out 2>err </dev/null
  [ $? -eq "$code" ] && grep -qF -e "$text" err && [ ! -s out ]
  check "$name" $?
}

"$trireme" data tokenize "$reference/kjv.txt" "$reference/mixed.txt" --tokenizer "$reference" --validation 0.25 \
  -o corpus.h5 >out 2>err
check tokenize $?
"$trireme" data info corpus.h5 >facts 2>err && grep -qx "tokenizer bpe tokenizer.json" facts &&
  grep -qx "vocab_size 1200" facts
check info $?
bytes=$(($(sed -n 's/^train_bytes //p' facts) + $(sed -n 's/^validation_bytes //p' facts)))
[ "$bytes" -eq $(($(wc -c <"$reference/kjv.txt") + $(wc -c <"$reference/mixed.txt"))) ]
check info_counts_the_text $?

"$trireme" data encode -t "$reference/merges.txt" <"$reference/mixed.txt" >ids 2>err && cmp -s ids "$reference/mixed.ids"
check encode $?
"$trireme" data decode -t "$reference/tokenizer.json" <ids >text 2>err && cmp -s text "$reference/mixed.txt"
check decode $?
"$trireme" data encode <"$trireme" | "$trireme" data decode >copy && cmp -s copy "$trireme"
check any_bytes_through_both $?
"$trireme" data encode </dev/null >out 2>err && [ ! -s out ]
check encode_nothing $?

expect_error no_action 2 "data wants tokenize, info, encode or decode"
expect_error unknown_action 2 "found tokenise" tokenise
expect_error no_text 2 "at least one text" tokenize -o x.h5
expect_error no_output 2 "wants --output" tokenize "$reference/kjv.txt"
expect_error unknown_option 2 "did you mean --tokenizer?" tokenize --tokeniser bytes
expect_error bad_fraction 2 "option --validation wants a number in [0, 0.99], found 'x'" \
  tokenize a -o x.h5 --validation x
expect_error option_of_another 2 "data info takes no option --output" info corpus.h5 -o x.h5
expect_error two_corpora 2 "data info wants one corpus" info a b
expect_error words_for_a_pipe 2 "reads standard input, found a" encode a
expect_error no_such_text 4 "missing.txt: cannot be opened: No such file" tokenize missing.txt -o x.h5
expect_error no_such_tokenizer 4 "nothing.json" tokenize "$reference/kjv.txt" -t nothing.json -o x.h5
expect_error not_a_corpus 5 "kjv.txt: cannot be opened as a corpus" info "$reference/kjv.txt"
echo 7 x | "$trireme" data decode >out 2>err
[ $? -eq 5 ] && grep -q "word 2, 'x" err
check bad_number $?
echo 256 | "$trireme" data decode >out 2>err
[ $? -eq 5 ] && grep -q "standard input: number 256 at place 0 is no token" err
check no_such_token $?
mkdir limited
(ulimit -f 4; exec "$trireme" data tokenize "$reference/kjv.txt" -o limited/x.h5) >out 2>err
[ $? -eq 4 ] && grep -q "limited/x.h5: writing failed at byte [0-9]*: File too large" err && [ -z "$(ls limited)" ]
check limited_file_size $?
if [ -w /dev/full ]; then
  "$trireme" data encode <"$reference/kjv.txt" >/dev/full 2>err
  [ $? -eq 4 ] && grep -q "standard output cannot be written" err
  check full_output $?
fi
[ ! -e x.h5 ]
check nothing_left_behind $?
exit $failed

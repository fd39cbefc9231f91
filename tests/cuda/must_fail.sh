#!/usr/bin/env bash
# must_fail.sh TEXT PROGRAM [ARGUMENT...]: the program must fail, and say TEXT while it does. How a check proves that it can fail.
set -u
text=$1
shift
output=$("$@" 2>&1)
status=$?
if [ "$status" -eq 0 ]; then
    echo "ended well, but a planted bug should have failed it"
    exit 1
fi
if ! grep -qF -- "$text" <<<"$output"; then
    echo "failed with status $status, but never said: $text"
    tail -n 20 <<<"$output"
    exit 1
fi
grep -m 3 -F -- "$text" <<<"$output"

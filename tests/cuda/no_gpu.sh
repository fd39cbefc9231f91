#!/usr/bin/env bash
# no_gpu.sh PROGRAM...: without a GPU each program must end with status 77 and one line that says so. With one there is nothing to check.
set -u
if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; then
    echo "skipped: there is a GPU here"
    exit 0
fi
for program; do
    said=$("$program" 2>&1)
    status=$?
    case "$status $said" in
        "77 skipped: there is no GPU here"*) ;;
        *) echo "$program ended with status $status and said: $said"; exit 1 ;;
    esac
    [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] || { echo "$program said more than one line: $said"; exit 1; }
done
echo "$# programs said that there is no GPU"

#!/bin/sh
# The rooms below the drivers touch no clock, socket, file, thread or random device: their objects may need nothing but each
# other, the tokenizer's pure functions and the few names below.
#   purity.sh NM ARCHIVE...    (one archive a room)
set -eu
nm=$1
shift

# base: memory, the last words of an assertion, sentences of errors and logs
allowed='^(calloc|free|abort|stderr|fprintf|fwrite|vsnprintf|snprintf|sscanf|__isoc99_sscanf)$|^__(fprintf|snprintf|vsnprintf)_chk$'
# strings and numbers in memory
allowed="$allowed"'|^(mem(chr|cmp|cpy|move|set)|bcmp|str(chr|cmp|len|ncmp|str)|tolower|__ctype_tolower_loc)$|^__(memcpy|memmove|memset)_chk$'
allowed="$allowed"'|^(cos|exp|fabs|floor|fmax|fmin|log|pow|rint|round|sin|sqrt)f?$'
# which instructions exist: chooses among kernels that give the same bits
allowed="$allowed"'|^__cpu_(model|features2)$'
# the tokenizer's pure functions
allowed="$allowed"'|^gb_tokenizer_(bytes|find|is_special|size)$|^gb_utf8_(push|flush)$'
# what compilers and instrumented builds add
allowed="$allowed"'|^__stack_chk_fail$|^_GLOBAL_OFFSET_TABLE_$|^__(asan|ubsan|tsan|sanitizer)_'

needed=$("$nm" -u "$@" 2>/dev/null | awk 'NF == 2 { print $2 }' | sort -u)
defined=$("$nm" --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
[ -n "$defined" ] || { echo "no symbols found in: $*"; exit 1; }

impure=$(printf '%s\n' "$needed" | grep -Ev "$allowed" | grep -Fxv "$defined" || true)
if [ -n "$impure" ]; then
    echo "symbols that a sans-I/O room must not need:"
    echo "$impure"
    exit 1
fi
echo "$(printf '%s\n' "$needed" | wc -l) symbols needed, all pure"

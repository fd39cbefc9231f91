#!/bin/sh
# The rooms below the drivers touch no clock, socket, file, thread or random device: their objects may need nothing but each
# other, the tokenizer's pure functions and the few names below. Only base allocates and says the last words of an assertion.
#   purity.sh NM BASE-ARCHIVE ARCHIVE...    (one archive a room)
set -eu
nm=$1
base=$2
shift 2

# strings and numbers in memory
pure='^(mem(chr|cmp|cpy|move|set)|bcmp|str(chr|cmp|len|ncmp|str)|tolower|__ctype_tolower_loc)$|^__(memcpy|memmove|memset)_chk$'
pure="$pure"'|^(snprintf|vsnprintf|sscanf|__isoc99_sscanf)$|^__(snprintf|vsnprintf)_chk$'
pure="$pure"'|^(cos|exp|fabs|floor|fmax|fmin|fmod|log|pow|rint|round|sin|sqrt)f?$'
# which instructions exist: chooses among kernels that give the same bits
pure="$pure"'|^__cpu_(model|features2)$'
# the tokenizer's pure functions
pure="$pure"'|^gb_tokenizer_(bytes|find|is_special|size)$|^gb_utf8_(push|flush)$'
# what compilers and instrumented builds add
pure="$pure"'|^__stack_chk_fail$|^_GLOBAL_OFFSET_TABLE_$|^__(asan|ubsan|tsan|sanitizer)_'

defined=$("$nm" --defined-only "$base" "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
[ -n "$defined" ] || { echo "no symbols found in $base $*"; exit 1; }

# check ALLOWED ARCHIVE...
check() {
    allowed=$1
    shift
    needed=$("$nm" -u "$@" 2>/dev/null | awk 'NF == 2 { print $2 }' | sort -u)
    impure=$(printf '%s\n' "$needed" | grep -Ev "$allowed" | grep -Fxv "$defined" || true)
    [ -z "$impure" ] && return
    echo "symbols that a sans-I/O room must not need:"
    echo "$impure"
    exit 1
}

check "$pure"'|^(calloc|free|abort|stderr|fprintf|fwrite|__fprintf_chk)$' "$base"
[ $# -eq 0 ] || check "$pure" "$@"
echo "all pure"

#!/bin/sh
# log-compilers.sh LOG CACHE CMD...: run CMD with MIOpen's kernel cache in CACHE; each compiler that Debian's
# MIOpen 6.4.3 starts has its arguments written to LOG, one a line, an empty line behind them. Runs in a root
# whose changes are thrown away: the two compilers are replaced there.
log=$1
MIOPEN_CUSTOM_CACHE_DIR=$2
export MIOPEN_CUSTOM_CACHE_DIR
shift 2
for name in /usr/bin/clang++-21 /build/reproducible-path/miopen-6.4.3+dfsg/build/clang-21; do
    real=/usr/lib/llvm-21/bin/$(basename "${name%-21}")
    mkdir -p "$(dirname "$name")"
    rm -f "$name"
    printf '#!/bin/sh\n{ printf "%%s\\n" "$@"; echo; } >> "%s"\nexec %s "$@"\n' "$log" "$real" > "$name"
    chmod 755 "$name"
done
exec "$@"

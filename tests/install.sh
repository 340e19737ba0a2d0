#!/usr/bin/env bash
# install.sh BUILD: installs into a scratch directory, builds the example with pkg-config against it, runs it.
# Speaks TAP, as the other test programs do.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME=$scratch/cache # what is learned here must not reach the user's profiles
. tests/support/tap.sh

check "installs" cmake --install "$build" --prefix "$scratch/usr"
library=$(dirname "$(find "$scratch/usr" -name 'libmoraine.so' | head -n 1)")
export PKG_CONFIG_PATH="$library/pkgconfig" LD_LIBRARY_PATH="$library"
# The names in moraine.map, and those that the headers declare; declarations may take several lines.
exported() { nm -D --defined-only "$library/libmoraine.so" | awk '$2 ~ /[TDBRVW]/ {sub(/@.*/, "", $3); print $3}' | sort; }
listed() { grep -oE '^ +mo_[a-z0-9_]+;' src/api/moraine.map | tr -d ' ;' | sort; }
declared() {
    cat "$scratch"/usr/include/moraine*.h | grep -v '#' | tr '\n' ' ' | sed -E 's|/\*([^*]\|\*+[^*/])*\*+/||g' >"$scratch/declarations"
    { grep -oE 'MO_API [^;{(]*\(' "$scratch/declarations" | grep -oE 'mo_[a-z0-9_]+\($' | tr -d '('
      grep -oE 'MO_OPTIONS\([a-z_]+\)' "$scratch/declarations" | sed -E 's/.*\((.*)\)/\1_init/'; } | sort
}
check "the library exports the names of moraine.map" diff <(listed) <(exported)
check "those are the functions that the installed headers declare" diff <(listed) <(declared)
check "the header of the library's own programs is not installed" test ! -e "$scratch/usr/include/moraine_server.h"
check "the example builds" bash -c "cc -std=c11 -Wall -Wextra -Werror examples/complete.c -o '$scratch/complete' \$(pkg-config --cflags --libs moraine)"
check "the example prints the whole text and goes on" bash -c "[[ \$('$scratch/complete' tests/data/oracle/llama31.gguf 'Hello there' 8) == 'Hello there'?* ]]"
check "a program finds a library under a prefix of its own" bash -c "unset LD_LIBRARY_PATH; cc examples/complete.c -o '$scratch/complete' \$(pkg-config --cflags --libs moraine) -Wl,-rpath,\$(pkg-config --variable=libdir moraine) && '$scratch/complete' tests/data/oracle/llama31.gguf 'Hello' 1"
check "the example of eight texts builds" bash -c "cc -std=c11 -Wall -Wextra -Werror examples/together.c -o '$scratch/together' \$(pkg-config --cflags --libs moraine)"
check "eight texts are continued together, one cancelled" bash -c "test \"\$('$scratch/together' tests/data/oracle/llama31.gguf | grep -ac '\[cancelled\]')\" = 1"
check "the example of eight texts is under 60 lines" test "$(wc -l <examples/together.c)" -lt 60
check "moraine.h has at most 600 lines" test "$(wc -l <include/moraine.h)" -le 600
check "moraine_tools.h has at most 400 lines" test "$(wc -l <include/moraine_tools.h)" -le 400
check "moraine.h has at most 70 functions" test "$(grep -cE '^MO_(API|OPTIONS)' include/moraine.h)" -le 70
check "the example is under 60 lines" test "$(wc -l <examples/complete.c)" -lt 60
# Five programs that a reader wrote from the headers alone (tests/programs): they check what they compute themselves.
model=models/pebble.gguf
for program in complete eight schema plan save; do
    check "tests/programs/$program.c builds" bash -c "cc -std=c11 -Wall -Wextra -Wpedantic -Werror tests/programs/$program.c -o '$scratch/$program' \$(pkg-config --cflags --libs moraine) -lm -lpthread"
done
check "a text is completed up to a stop string" "$scratch/complete" $model 'Once upon a time' . ,
check "eight texts together are what they are alone" "$scratch/eight" $model
check "an answer follows its schema, with log probabilities" "$scratch/schema" $model
check "a plan and a run compare by name" "$scratch/plan" $model
check "a generation is saved" "$scratch/save" first "$scratch/saved" $model
check "another process continues it with the same text" "$scratch/save" second "$scratch/saved" $model
for header in moraine.h moraine_pictures.h moraine_tools.h; do
    check "$header compiles alone, as C11 and as C++17" bash -c "echo '#include <$header>' >'$scratch/one.c' && cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I '$scratch/usr/include' '$scratch/one.c' && c++ -std=c++17 -x c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I '$scratch/usr/include' '$scratch/one.c'"
done
check "the installed program runs" "$scratch/usr/bin/moraine" --version
check "the installed program runs without a model's name" bash -c "cd / && unset MORAINE_MODEL && test -n \"\$('$scratch/usr/bin/moraine' run -p 'Hello' --temp 0 -n 8 --quiet)\""
# make install brings the module for several machines where it was built; -o all: nothing is built here.
check "make install installs" make -s -o all install BUILD="$build" PREFIX="$scratch/made"
check "it has what the build has" diff <("$build/moraine" --version) <("$scratch/made/bin/moraine" --version)
check "a program without its module names the directory where it looks" bash -c "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 '$scratch/usr/bin/moraine' run -p Hello 2>&1 | grep -F 'not in $scratch/usr/lib/moraine;'"
check "the manual page is there" test -s "$scratch/usr/share/man/man1/moraine.1"
check "completion offers the commands" bash -c "PATH='$scratch/usr/bin':\$PATH; . '$scratch/usr/share/bash-completion/completions/moraine'; COMP_WORDS=(moraine in) COMP_CWORD=1; _moraine; test \"\${COMPREPLY[0]}\" = inspect"

# The other shells: in themselves where they are there, and everywhere by their words.
zsh_file=$scratch/usr/share/zsh/vendor-completions/_moraine fish_file=$scratch/usr/share/fish/vendor_completions.d/moraine.fish
check_in() { # shell, what, command...
    if command -v "$1" >/dev/null; then
        check "${@:2}"
    else
        number=$((number + 1))
        echo "ok $number - $2 # SKIP there is no $1"
    fi
}
same_values() { # every list of words that bash offers
    grep -oE 'W "?[a-z][a-z0-9_ ]+' "$scratch/usr/share/bash-completion/completions/moraine" | sed -E 's/^W "?//; s/ +$//' | while read -r words; do
        if ! grep -qF "$words" "$zsh_file" || ! grep -qF "$words" "$fish_file"; then
            echo "$words"
            exit 1
        fi
    done
}
zsh_offers() { # what is expected, words...
    PATH="$scratch/usr/bin:$PATH" zsh -f -c 'words=("$@"); CURRENT=$#words; PREFIX=$words[-1]
        _describe() { print -rl -- ${${(P)2}%%:*} }; compadd() { print -rl -- "$@" }; . '"'$zsh_file'" zsh "${@:2}" | grep -x -- "$1" >/dev/null
}
fish_offers() { # what is expected, the line
    PATH="$scratch/usr/bin:$PATH" HOME="$scratch" fish --no-config -c ". '$fish_file'; complete -C '$2'" | cut -f 1 | grep -x -- "$1" >/dev/null
}
check "completion offers the same values in bash, zsh and fish" same_values
check_in zsh "completion of zsh offers the commands" zsh_offers inspect moraine in
check_in zsh "completion of zsh offers a command's options" zsh_offers --moe-hot-cache moraine plan --mo
check_in fish "completion of fish offers the commands" fish_offers inspect 'moraine in'
check_in fish "completion of fish offers a command's options" fish_offers --moe-hot-cache 'moraine plan --mo'
check_in fish "completion of fish offers an option's values" fish_offers q8_0 'moraine plan --kv '
echo "1..$number"

# Completion of `lockstep` for bash: the commands, and the flags of the one that is typed, as its --help lists them.

# _lockstep_entries HELP: the commands and flags in a help text, one a line.
_lockstep_entries() {
  sed -nE -e '/^commands:/,/^$/s/^  (-*[a-z][a-z-]*) .*/\1/p' \
    -e 's/^  (-[a-z], )?--\[no-\]([a-z0-9-]+).*/--\2\n--no-\2/p' -e 's/^  (-[a-z], )?(--[a-z0-9-]+).*/\2/p' <<<"$1"
}

_lockstep() {
  local current="${COMP_WORDS[COMP_CWORD]}" word help
  local -a command=("${COMP_WORDS[0]}")
  help="$("${command[@]}" --help 2>/dev/null)"
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $word == -* ]] || ! _lockstep_entries "$help" | grep -qxF -- "$word"; then break; fi
    command+=("$word")
    help="$("${command[@]}" --help 2>/dev/null)"
  done
  mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_entries "$help")" -- "$current")
}

complete -o default -o bashdefault -F _lockstep lockstep

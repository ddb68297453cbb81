# Completion of dorajit and dorajitd in bash, from what their own --help lists.

_dorajit() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} command=() word help offers=
  local previous=${COMP_WORDS[COMP_CWORD - 1]} commands='/^Subcommands:/,/^$/s/^  ([a-z-]+) .*/\1/p'
  [[ $current != = ]] || current=
  [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
  help=$("$program" --help 2>/dev/null)
  for word in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
    if [[ -n $word ]] && sed -nE "$commands" <<<"$help" | grep -qxF -e "$word"; then
      command+=("$word")
      help=$("$program" "${command[@]}" --help 2>/dev/null)
    fi
  done
  help=$(sed -E ':a;/\|$/{N;s/\n *//;ba}' <<<"$help")  # choices of several lines
  if [[ $current == -* ]]; then
    offers=$(sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p' <<<"$help")
  elif [[ $previous == --* ]] && word=$(sed -nE "s/^  $previous ([^ ]+).*/\1/p" <<<"$help") &&
    [[ -n $word ]]; then
    # cpu|cuda|cuda:N lists words; upper case stands for what varies.
    [[ $word != *'|'* ]] || offers=$(tr '|' '\n' <<<"$word" | grep -v '[A-Z]')
  else
    offers=$(sed -nE "$commands" <<<"$help")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$offers" -- "$current")
}

complete -o default -F _dorajit dorajit dorajitd

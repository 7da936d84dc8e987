# Completions of kmemtrace for bash: those of the program that does the work of the first word.
_kmemtrace() {
	local program=kmemtrace-report skipped=0 completer
	if ((COMP_CWORD > 1)); then
		case ${COMP_WORDS[1]} in
		@CHOICES@
		esac
	fi
	complete -p "$program" &>/dev/null || source <("$program" completions bash)
	completer=$(complete -p "$program")
	completer=${completer#*-F }
	COMP_WORDS=("$program" "${COMP_WORDS[@]:1+skipped}")
	COMP_CWORD=$((COMP_CWORD - skipped))
	"${completer%% *}" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	if ((COMP_CWORD == 1 && skipped == 0)); then
		COMPREPLY+=($(compgen -W "@WORDS@" -- "${COMP_WORDS[1]}"))
	fi
}
complete -F _kmemtrace -o bashdefault -o default kmemtrace

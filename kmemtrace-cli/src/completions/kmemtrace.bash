# Completions of kmemtrace for bash: those of the program that does the work of the first word.
_kmemtrace() {
	local program=kmemtrace-report skipped=0
	if ((COMP_CWORD > 1)); then
		case ${COMP_WORDS[1]} in
		@CHOICES@
		esac
	fi
	declare -F "_$program" >/dev/null || source <("$program" completions bash)
	COMP_WORDS=("$program" "${COMP_WORDS[@]:1+skipped}")
	COMP_CWORD=$((COMP_CWORD - skipped))
	"_$program" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	if ((COMP_CWORD == 1 && skipped == 0)); then
		COMPREPLY+=($(compgen -W "@WORDS@" -- "${COMP_WORDS[1]}"))
	fi
}
complete -F _kmemtrace -o bashdefault -o default kmemtrace

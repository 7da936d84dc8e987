# Completions of kmemtrace for fish: those of the program that does the work of the first word.
function __kmemtrace_complete
	set -l program kmemtrace-report
	set -l skipped 0
	set -l words (commandline -opc) (commandline -ct)
	if test (count $words) -gt 2
		switch $words[2]
		@CHOICES@
		end
	else
		printf '%s\n' (string split ' ' '@WORDS@')
	end
	set -l rest $words[(math 2 + $skipped)..-1]
	complete -C (string join ' ' -- $program (string escape -- $rest[1..-2]) $rest[-1])
end
complete -c kmemtrace -f -a '(__kmemtrace_complete)'

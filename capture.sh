#!/bin/sh
# Captures a kernel's memory events with no program of ours, while COMMAND runs (else for five seconds), into a tree of plain
# files that kmemtrace-check and kmemtrace-report read on any machine. As root: capture.sh DIR [COMMAND [ARGUMENT ...]]
# EVENTS=page, percpu, vmalloc, all (these and slab) or latency (reclaim and compaction); else slab. STACKS=alloc: a call stack with
# each allocation, and with each begin of a reclaim or compaction; all: with each event. Allocations without a call site have one anyway.
# PROBES=1: frees by RCU and in bulk, which have no event of their own, by probe events (Linux 6.9 or later).
# BUFFER_KB: kernel buffer of a CPU. TEXT=1: the kernel's own text of the events, too, with the addresses of frames, in the file trace.
set -eu
out=${1:?usage: capture.sh DIR [COMMAND [ARGUMENT ...]]}; shift
case ${EVENTS:-slab} in slab | page | percpu | vmalloc | all | latency) ;; *)
	echo "capture.sh: EVENTS=$EVENTS: is unknown: use slab, page, percpu, vmalloc, all or latency" >&2; exit 2 ;;
esac
[ -z "$(ls -A "$out" 2>/dev/null)" ] || { echo "capture.sh: $out: exists already: use another name" >&2; exit 2; }
[ $# -gt 0 ] || set -- sleep 5
tracefs=/sys/kernel/tracing; [ -d $tracefs/instances ] || mount -t tracefs none $tracefs ||
	{ tracefs=/sys/kernel/debug/tracing; [ -d $tracefs/instances ]; }	# Before Linux 4.1.
instance=$tracefs/instances/kmemtrace-capture
mkdir $instance || { echo "capture.sh: another one is at work, or was killed: then rmdir $instance" >&2; exit 2; }
group=kmemtrace_capture
undefine() { # With the function, a probe event of another program stays.
	for probe in 'kvfree_rcu kvfree_call_rcu' 'free_bulk kmem_cache_free_bulk' 'alloc_bulk kmem_cache_alloc_bulk_noprof'; do
		(echo "-:$group/$probe" >>$tracefs/dynamic_events) 2>/dev/null || :
	done
}
# What is held open cannot be removed, nor what is enabled. Not every shell comes to EXIT when a signal ends it.
trap 'wait; rmdir $instance; [ -z "${PROBES:-}" ] || undefine' EXIT; trap 'exit 1' HUP INT TERM
echo mono >$instance/trace_clock || echo global >$instance/trace_clock	# Older kernels.
echo "${BUFFER_KB:-16384}" >$instance/buffer_size_kb
# These tell the cgroup of each thread, and which module loads; they are rare.
threads='task/task_newtask cgroup/cgroup_attach_task cgroup/cgroup_mkdir cgroup/cgroup_rename cgroup/cgroup_rmdir
	module/module_load module/module_free'
case ${EVENTS:-slab} in
slab) names="kmem/kmalloc* kmem/kmem_cache_* kmem/kfree $threads" ;;
page) names="kmem/mm_page_alloc kmem/mm_page_free $threads" ;;
percpu) names='percpu/percpu_alloc_* percpu/percpu_free_*' ;;
vmalloc) names='vmalloc/alloc_vmap_area vmalloc/free_vmap_area_*' ;;
latency)
	names='vmscan/*_reclaim_begin vmscan/*_reclaim_end vmscan/mm_shrink_slab_* vmscan/mm_vmscan_throttled
		vmscan/mm_vmscan_lru_shrink_*active vmscan/*kswapd* compaction/mm_compaction_begin compaction/mm_compaction_end
		compaction/mm_compaction_try_to_compact_pages compaction/mm_compaction_finished compaction/mm_compaction_deferred
		compaction/mm_compaction_kcompactd_* oom/mark_victim oom/reclaim_retry_zone oom/compact_retry' ;;
*) names="kmem/kmalloc* kmem/kmem_cache_* kmem/kfree kmem/mm_page_alloc kmem/mm_page_free
		percpu/percpu_alloc_* percpu/percpu_free_* vmalloc/alloc_vmap_area vmalloc/free_vmap_area_* $threads" ;;
esac
case ${PROBES:+${EVENTS:-slab}} in slab | all)
	define() { # EVENT DEFINITION
		if (echo "$2" >>$tracefs/dynamic_events) 2>/dev/null && echo 1 >"$instance/events/$group/$1/enable"; then return; fi
		echo "capture.sh: no event $1: $(sed -n 's/.* error: //p' $tracefs/error_log | tail -n 1)" >&2
		return 1
	}
	undefine	# Left by one that was killed.
	begin=p end=r mark=	# fprobe events have no registers, and so no caller where it is in one.
	case $(uname -m) in
	aarch64) caller=%lr ;; riscv64) caller=%ra ;; loongarch64) caller=%r1 ;; s390x) caller=%r14 ;; ppc64*) caller=%link ;;
	*) caller='$stack0'; ! grep -Fq 'f[:[<group>/]' $tracefs/README || begin=f end=f mark=%return ;;
	esac
	define kvfree_rcu "$begin:$group/kvfree_rcu kvfree_call_rcu ptr call_site=$caller:x64" || :
	# Without the allocations nothing is known of the addresses that are freed, and without the frees all are live.
	define alloc_bulk "$end:$group/alloc_bulk kmem_cache_alloc_bulk_noprof$mark name=s->name:string bytes_req=s->object_size:u32 \
bytes_alloc=s->size:u32 gfp_flags=flags size ret=\$retval p=+0(p):x64[64]" && {
		define free_bulk "$begin:$group/free_bulk kmem_cache_free_bulk s size name=s->name:string call_site=$caller:x64 \
p=+0(p):x64[64]" || echo 0 >"$instance/events/$group/alloc_bulk/enable"; } || : ;;
esac
# shellcheck disable=SC2086 # patterns
for event in $(cd $instance/events && ls -d $names 2>/dev/null); do
	case ${STACKS:-}/$event in
	all/*) echo 1 >$instance/options/stacktrace ;;
	alloc/*/*alloc* | alloc/*_begin | */alloc_vmap_area) echo stacktrace >"$instance/events/$event/trigger" ;;
	*/percpu_alloc_percpu)	# It has a call site from Linux 5.19 on.
		grep -q call_site "$instance/events/$event/format" || echo stacktrace >"$instance/events/$event/trigger" ;;
	esac
	echo 1 >"$instance/events/$event/enable"
done
copy() { [ ! -e "$1" ] || { mkdir -p "$out/$(dirname "$2")"; cat "$1" >"$out/$2"; }; }
memory() { # START-OR-END: texts on the machine's memory, once its counters are added up.
	(echo 1 >/proc/sys/vm/stat_refresh) 2>/dev/null || :
	for text in meminfo zoneinfo vmstat buddyinfo slabinfo vmallocinfo allocinfo; do copy "/proc/$text" "${text}_$1"; done
}
cgroups() { # Lines TID TGID ROOT PATH: the cgroup of version 2, else of the memory controller, of each thread.
	case ${EVENTS:-slab} in percpu | vmalloc | latency) return ;; esac
	mkdir -p "$out"
	(cd /proc && grep -Hs . [0-9]*/task/[0-9]*/cgroup) | awk -F: '{
		path = substr($0, length($1) + length($2) + length($3) + 4); split($1, part, "/"); thread = part[3] " " part[1]
		if ($3 == "") second[thread] = $2 " " path
		else if ("," $3 "," ~ /,memory,/) first[thread] = $2 " " path
	} END {
		for (thread in second) print thread, second[thread]
		for (thread in first) if (!(thread in second)) print thread, first[thread]
	}' >>"$out/cgroups" || :
}
memory start
cgroups
trap : INT	# Ctrl-C ends COMMAND; what it did is kept.
"$@" || true
trap 'exit 1' INT
memory end
cgroups	# What clone3 put into a cgroup has no event of it.
echo 0 >$instance/tracing_on
if [ -n "${TEXT:-}" ]; then mkdir -p "$out"; echo 1 >$instance/options/sym-addr; cat $instance/trace >"$out/trace"; fi
for cpu in $instance/per_cpu/cpu*; do
	mkdir -p "$out/per_cpu/${cpu##*/}"
	# A reader of an empty buffer waits for ever, so each has two seconds; all at once.
	timeout 2 dd bs=1M if=$cpu/trace_pipe_raw of="$out/per_cpu/${cpu##*/}/trace_pipe_raw" 2>/dev/null &
done
wait
case ${EVENTS:-slab} in
latency) systems='vmscan compaction oom' ;;
percpu | vmalloc) systems='kmem percpu vmalloc' ;;
all) systems='kmem percpu vmalloc task cgroup module' ;;
*) systems='kmem task cgroup module' ;;
esac
for file in $instance/per_cpu/cpu*/stats $instance/events/header_* \
	$(for system in $systems $group ftrace; do ls $instance/events/$system/*/format 2>/dev/null; done) $instance/trace_clock; do
	copy "$file" "${file#$instance/}"
done
copy $tracefs/saved_cmdlines saved_cmdlines; copy /proc/kallsyms kallsyms
: >"$out/modules"; copy /proc/modules modules	# A kernel without modules has no such file.
copy /sys/kernel/notes notes; copy /proc/sys/kernel/random/boot_id boot_id
# Each module: build-id (behind a header of 16 bytes), path of its file, addresses of its code.
while read -r module rest; do
	id=$(od -An -v -tx1 -j16 "/sys/module/$module/notes/.note.gnu.build-id" 2>/dev/null | tr -d ' \n') || :
	name=$(echo "$module" | sed 's/_/[-_]/g')
	path=$(sed -n "s,^,/,;/\/$name\.ko[^/:]*:/{s,^/,,;s,^kernel/,,;s,\.ko[^/:]*:.*,,p;q;}" \
		"/lib/modules/$(uname -r)/modules.dep" 2>/dev/null) || :
	code=$(cd "/sys/module/$module/sections" 2>/dev/null && grep -Hs . .text* .*.text* | tr ':\n' '= ') || :
	echo "$module ${id:--} ${path:--} $code"
done <"$out/modules" >"$out/module_info"
# Caches whose objects the kernel takes back when it is short of memory, and the threads that live.
(cd /sys/kernel/slab 2>/dev/null && grep -s . ./*/reclaim_account) | sed 's,^\./\(.*\)/reclaim_account:,\1 ,' >"$out/reclaim_account" || :
(cd /proc && ls -d [0-9]*/task/[0-9]* 2>/dev/null) | sed 's,.*/,,' >"$out/threads" || :
# Other names of merged caches, behind the one that slabinfo lists.
[ ! -s "$out/slabinfo_end" ] || ls -l /sys/kernel/slab 2>/dev/null | awk 'FNR == NR { listed[$1]; next }
	NF > 3 && $(NF - 1) == "->" { if ($(NF - 2) in listed) { caches[$NF]++; name[$NF] = $(NF - 2) } else others[$NF] = others[$NF] " " $(NF - 2) }
	END { for (cache in name) if (caches[cache] == 1 && cache in others) print name[cache] others[cache] }' \
	"$out/slabinfo_end" - >"$out/cache_aliases" || :
uname -a >"$out/uname"; awk '/KernelPageSize/ { print $2 * 1024; exit }' /proc/self/smaps >"$out/page_size"

#!/bin/sh
# Starts the recorder, where rd.kmemtrace asks for it. rd.memdebug=4 and 5 mean levels 1 and 2 where memstrack is not there.
type getargnum >/dev/null 2>&1 || . /lib/dracut-lib.sh

level=$(getargnum 0 0 3 rd.kmemtrace)
if [ "$level" -eq 0 ] && ! command -v memstrack >/dev/null; then
	case $(getargnum 0 0 5 rd.memdebug) in
	4) level=1 ;;
	5) level=2 ;;
	esac
fi

if [ "$level" -gt 0 ]; then
	[ -d /sys/kernel/tracing/instances ] || mount -t tracefs none /sys/kernel/tracing
	# A file system of its own: the recording never takes more memory than that.
	mkdir -p /run/kmemtrace
	mount -t tmpfs -o mode=0700,size=32m none /run/kmemtrace
	echo "$level" >/run/kmemtrace/level
	kmemtraced --lean -e page --stack --max-size 24M -o /run/kmemtrace/trace 2>/run/kmemtrace/messages &
	echo $! >/run/kmemtrace/pid
fi

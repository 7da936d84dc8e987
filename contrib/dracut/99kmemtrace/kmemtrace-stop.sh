#!/bin/sh
# Stops the recorder before the system leaves the initramfs, and reports: on the console, and in /run/initramfs/kmemtrace.txt.

kmemtrace_report() {
	cat /run/kmemtrace/messages
	kmemtrace-report modules /run/kmemtrace/trace
	[ "$1" -lt 2 ] || kmemtrace-report tree --by module,stack --throttle 80 /run/kmemtrace/trace
	[ "$1" -lt 3 ] || for view in tasks uses sites; do
		kmemtrace-report $view /run/kmemtrace/trace
	done
}

if [ -e /run/kmemtrace/pid ]; then
	pid=$(cat /run/kmemtrace/pid)
	kill -TERM "$pid" 2>/dev/null
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	mkdir -p /run/initramfs
	kmemtrace_report "$(cat /run/kmemtrace/level)" >/run/initramfs/kmemtrace.txt 2>&1
	cat /run/initramfs/kmemtrace.txt >/dev/console
fi

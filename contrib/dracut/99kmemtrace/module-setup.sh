#!/bin/bash
# shellcheck disable=SC2154 # dracut sets moddir, initdir and systemdsystemunitdir
# Who takes memory in the initramfs: kmemtraced records pages with their stacks from before udev on, and the report comes on the
# console and into /run/initramfs/kmemtrace.txt. Asked for on the kernel's command line: rd.kmemtrace=1|2|3.

check() {
	require_binaries kmemtraced kmemtrace-report || return 1
	# Only where it is asked for: --add kmemtrace.
	return 255
}

depends() {
	return 0
}

install() {
	inst_multiple kmemtraced kmemtrace-report mount mkdir cat sleep
	inst_script "$moddir/kmemtrace-start.sh" /sbin/kmemtrace-start
	inst_script "$moddir/kmemtrace-stop.sh" /sbin/kmemtrace-stop
	if dracut_module_included systemd; then
		inst_simple "$moddir/kmemtrace.service" "$systemdsystemunitdir/kmemtrace.service"
		systemctl -q --root "$initdir" add-wants initrd.target kmemtrace.service
	else
		inst_hook pre-udev 01 "$moddir/kmemtrace-start.sh"
	fi
	inst_hook cleanup 99 "$moddir/kmemtrace-stop.sh"
}

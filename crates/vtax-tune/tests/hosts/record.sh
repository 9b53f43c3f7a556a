#!/bin/sh
# Copies the files of this machine that rules look at into a folder: record.sh FOLDER
# Nothing that names the machine's user or its network's addresses is among them.
set -eu

into=$1
copy() {
    for file in "$@"; do
        [ -r "$file" ] && [ -f "$file" ] || continue
        mkdir -p "$into/$(dirname "$file")"
        # Files of the kernel say nothing of their length, and some can't be read.
        cat "$file" >"$into/$file" 2>/dev/null || rm -f "$into/$file"
    done
}

copy /proc/sys/kernel/osrelease /proc/interrupts /proc/net/softnet_stat /proc/stat
copy /proc/sys/net/core/busy_read /proc/sys/net/core/default_qdisc /proc/sys/net/core/netdev_budget \
    /proc/sys/net/core/netdev_max_backlog /proc/sys/net/core/rps_sock_flow_entries \
    /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_moderate_rcvbuf /proc/sys/net/ipv4/tcp_rmem \
    /proc/sys/net/ipv4/tcp_wmem /proc/sys/net/netfilter/nf_conntrack_count /proc/sys/net/netfilter/nf_conntrack_max
copy /proc/irq/*/smp_affinity_list /proc/irq/*/effective_affinity_list
cpu=/sys/devices/system/cpu
copy $cpu/online $cpu/isolated $cpu/smt/control $cpu/cpuidle/current_driver $cpu/cpu[0-9]*/topology/physical_package_id \
    $cpu/cpu[0-9]*/topology/thread_siblings_list $cpu/cpu[0-9]*/cpuidle/state*/* $cpu/cpu[0-9]*/cpufreq/scaling_governor
copy /sys/devices/system/node/node*/cpulist
for link in /sys/class/net/*; do
    copy "$link"/ifindex "$link"/mtu "$link"/flags "$link"/speed "$link"/gro_flush_timeout "$link"/napi_defer_hard_irqs \
        "$link"/device/uevent "$link"/device/numa_node "$link"/device/../uevent "$link"/device/../numa_node \
        "$link"/device/msi_irqs/* "$link"/device/../msi_irqs/* "$link"/master/uevent "$link"/bridge/stp_state \
        "$link"/queues/*/rps_cpus "$link"/queues/*/rps_flow_cnt "$link"/queues/*/xps_cpus "$link"/statistics/rx_packets \
        "$link"/statistics/rx_missed_errors
done

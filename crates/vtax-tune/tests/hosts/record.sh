#!/bin/sh
# Prints the files of this machine that rules read, each line prefixed with the file's path: record.sh > recorded/NAME.txt
# A NUL is printed as \0. For the links of another network namespace, run it in that namespace, with a separate /sys:
# ip netns exec NAME unshare --mount sh -c 'mount -t sysfs none /sys && sh record.sh'
# NAME.json next to it has the reports of the drivers: HostFacts::read(&SystemRoot::live(), &LiveNics).nics as JSON.
# The output names neither the machine's user nor its network's addresses.
set -eu

show() {
    for file in "$@"; do
        [ -r "$file" ] && [ -f "$file" ] || continue
        # The kernel's files don't report their length, and some cannot be read.
        cat "$file" 2>/dev/null | sed 's/\x00/\\0/g' | awk -v path="${file#/}" '{ print path ":" $0 }'
    done
}

show /proc/sys/kernel/osrelease /proc/interrupts /proc/net/softnet_stat /proc/stat
show /proc/sys/net/core/busy_read /proc/sys/net/core/default_qdisc /proc/sys/net/core/netdev_budget \
    /proc/sys/net/core/netdev_max_backlog /proc/sys/net/core/rps_sock_flow_entries \
    /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_moderate_rcvbuf /proc/sys/net/ipv4/tcp_rmem \
    /proc/sys/net/ipv4/tcp_window_scaling /proc/sys/net/ipv4/tcp_wmem /proc/sys/net/netfilter/nf_conntrack_count /proc/sys/net/netfilter/nf_conntrack_max
show /proc/irq/*/smp_affinity_list /proc/irq/*/effective_affinity_list
cpu=/sys/devices/system/cpu
show $cpu/online $cpu/isolated $cpu/nohz_full $cpu/smt/control $cpu/cpuidle/current_driver $cpu/cpu[0-9]*/topology/physical_package_id \
    $cpu/cpu[0-9]*/topology/thread_siblings_list $cpu/cpu[0-9]*/cpuidle/state*/* $cpu/cpu[0-9]*/cpufreq/scaling_governor
show /sys/devices/system/node/node*/cpulist
for link in /sys/class/net/*; do
    show "$link"/ifindex "$link"/mtu "$link"/type "$link"/phys_port_name "$link"/flags "$link"/speed "$link"/gro_flush_timeout "$link"/napi_defer_hard_irqs \
        "$link"/device/uevent "$link"/device/numa_node "$link"/device/../uevent "$link"/device/../numa_node \
        "$link"/device/msi_irqs/* "$link"/device/../msi_irqs/* "$link"/master/uevent "$link"/bridge/stp_state \
        "$link"/queues/*/rps_cpus "$link"/queues/*/rps_flow_cnt "$link"/queues/*/xps_cpus "$link"/statistics/rx_packets \
        "$link"/statistics/rx_missed_errors
done
for process in /proc/[0-9]*; do
    case $(tr '\0' '\n' <"$process/cmdline" | head -n 1) in
    *qemu-* | *kvm)
        show "$process"/comm "$process"/cmdline "$process"/stat "$process"/task/*/comm
        for task in "$process"/task/*; do
            grep -H Cpus_allowed_list "$task/status" | cut -c 2-
        done
        ;;
    esac
done

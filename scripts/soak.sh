#!/bin/bash
# Starts labs, guests and runs in a loop and interrupts or kills most of them at a random moment, while one long run is
# left undisturbed. At the end, the host must be in the same state as before: memory, open files, namespaces, links,
# processes, files.
# Usage: soak.sh MINUTES VTAX [SEED]    requires root; VTAX_AGENT as for the tests
set -eu

minutes=$1
vtax=$(realpath "$2")
RANDOM=${3:-1}
here=$(mktemp -d /var/tmp/vtax-soak.XXXXXX)
export VTAX_RUN=/run/vtax-soak
state=$here/state
log=$here/log
mkdir -p "$state" "$here/long"

lab() {
    printf '[lab]\nname = "%s"\n[[host]]\nname = "sut"\n[[host]]\nname = "peer"\n' "$1"
    printf '[[wire]]\nname = "w0"\nends = ["sut", "peer"]\n'
    printf '[[zone]]\nname = "web"\nhost = "sut"\nmethod = "%s"\ncount = 3\n' "$2"
}
lab soak-bridge bridge >"$here/bridge.toml"
lab soak-macvlan macvlan >"$here/macvlan.toml"
{
    lab soak-guest bridge | sed '/\[\[zone\]\]/,$d'
    printf '[[guest]]\nname = "db"\nhost = "sut"\nmethod = "paravirtual"\n'
} >"$here/guest.toml"

# Runs a command. In five of six cases, sends it a signal after at most the given number of milliseconds.
try() {
    most=$1
    shift
    echo "$*" >>"$log"
    "$@" >>"$log" 2>&1 &
    pid=$!
    case $((RANDOM % 6)) in
    0) signal= ;;
    1) signal=INT ;;
    2) signal=TERM ;;
    *) signal=KILL ;;
    esac
    if [ -n "$signal" ]; then
        sleep "$(printf '%d.%03d' $((RANDOM % most / 1000)) $((RANDOM % 1000)))"
        kill -"$signal" "$pid" 2>/dev/null || true
    fi
    rc=0
    wait "$pid" || rc=$?
    echo "ended with $rc ${signal:-alone}" >>"$log"
    count=$((count + 1))
    case $rc in
    101 | 134 | 139) panics=$((panics + 1)) ;;
    137) kills=$((kills + 1)) ;;
    esac
}

clean() {
    "$vtax" lab clean >>"$log" 2>&1 || echo "clean ended with $?" >>"$log"
    for name in soak-bridge soak-macvlan soak-guest; do
        "$vtax" lab down "$name" >>"$log" 2>&1 || true
    done
}

# Prints the number of objects of each kind.
objects() {
    echo "namespaces $(lsns --noheadings --type net --output NS | wc -l)"
    echo "links $(ip -oneline link | wc -l)"
    echo "programs $(pgrep -fc "$here|vtax-soak" || true)"
    echo "files $(find "$VTAX_RUN" /var/tmp/.vtax* -xdev 2>/dev/null | wc -l)"
    echo "mounts $(wc -l </proc/self/mounts)"
    echo "cgroups $(find /sys/fs/cgroup -type d 2>/dev/null | wc -l)"
    echo "open_files $(cut -f1 /proc/sys/fs/file-nr)"
    sed -n 's/^\(MemAvailable\|SUnreclaim\|SReclaimable\|Shmem\|KernelStack\|Percpu\): *\([0-9]*\) kB/\1_MiB \2/p' \
        /proc/meminfo | awk '{ printf "%s %d\n", $1, $2 / 1024 }'
}

settled() {
    clean
    sleep 3
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sleep 2
    objects
}

count=0 kills=0 panics=0
# The first lab creates directories that remain, so it is started before the first count.
"$vtax" lab up "$here/bridge.toml" >>"$log" 2>&1
settled >"$here/begin"

"$vtax" --state "$here/long" measure --samples 100000 --duration 20ms --warmup 0s >"$here/long.out" 2>&1 &
long=$!
end=$((SECONDS + minutes * 60))
while [ $SECONDS -lt $end ]; do
    case $((RANDOM % 8)) in
    0 | 1) try 800 "$vtax" lab up "$here/bridge.toml" ;;
    2) try 800 "$vtax" lab up "$here/macvlan.toml" ;;
    3) try 6000 "$vtax" lab up "$here/guest.toml" ;;
    4) try 500 "$vtax" lab down soak-bridge ;;
    5) try 6000 "$vtax" --state "$state" run demo --samples 1 --duration 30ms --warmup 5ms ;;
    6) try 3000 "$vtax" --state "$state" run --resume last ;;
    7) try 500 "$vtax" --state "$state" results show ;;
    esac
    if [ $((RANDOM % 4)) = 0 ]; then
        clean
    fi
    if [ -d /proc/$long ] && [ $((count % 20)) = 0 ]; then
        echo "$SECONDS $(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/$long/status) kB" \
            "$(ls /proc/$long/fd | wc -l) descriptors" >>"$here/long.memory"
    fi
done
kill -INT "$long" 2>/dev/null || true
wait "$long" || true
settled >"$here/end"

echo "$count commands, $kills killed, $panics panics, $((SECONDS / 60)) minutes; log in $here"
join "$here/begin" "$here/end" | column -t
sed -n "1p;\$p" "$here/long.memory" 2>/dev/null || true

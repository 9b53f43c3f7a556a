#!/bin/bash
# Measures between pods of a real Kubernetes cluster of two nodes on this machine, and checks `pod:` endpoints and the
# study `pods`: errors, rights, and what a killed vtax leaves. The cluster's programs are built once, into the cache: that takes 20 minutes of
# CPU time.
# Usage: pods.sh VTAX VTAX-AGENT    requires root; VTAX-AGENT must be static
set -eu
vtax=$(realpath "$1") agent=$(realpath "$2")
tests=$(realpath "$(dirname "$0")/../tests/pods")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vtax/pods
work=$(mktemp -d)

program() {
    local sources
    sources=$(cat "$tests"/cluster/* | sha256sum | cut -c 1-16)
    program=$cache/cluster-$sources
    [ ! -e "$program" ] || return 0
    command -v go >/dev/null || fail "go is missing; install Go 1.24 or later to build the cluster's programs"
    echo "pods: building Kubernetes, once: it takes 20 minutes of CPU time" >&2
    (umask 077 && mkdir -p "$cache")
    local version=k8s.io/component-base/version
    (cd "$tests/cluster" && CGO_ENABLED=0 nice -n 19 go build -p 1 -o "$program.part" -ldflags \
        "-s -w -X $version.gitVersion=v1.34.1 -X $version.gitMajor=1 -X $version.gitMinor=34 -X $version.gitTreeState=clean" .)
    mv "$program.part" "$program"
}

# Makes an archive of an image: image NAME TREE COMMAND
image() {
    local archive=$work/archive layer
    mkdir -p "$archive"
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$2" -cf "$archive/layer.tar" .
    layer=$(sha256sum <"$archive/layer.tar" | cut -d ' ' -f 1)
    printf '{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": [%s]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' "$3" "$layer" >"$archive/config.json"
    printf '[{"Config": "config.json", "RepoTags": ["vtax.test/%s:1"], "Layers": ["layer.tar"]}]' "$1" >"$archive/manifest.json"
    tar -C "$archive" -cf "$work/$1.tar" manifest.json config.json layer.tar
    rm -r "$archive"
}

images() {
    local trees=$work/trees
    mkdir -p "$trees"/{tools,pause,agent}/{bin,tmp,etc,proc,sys,dev}
    cp /bin/busybox "$trees/tools/bin/busybox"
    for applet in sh sleep cat head wc mkdir chmod rm uname ls; do
        ln -s busybox "$trees/tools/bin/$applet"
    done
    # An image without a shell: busybox can be started only as `sleep`.
    cp /bin/busybox "$trees/pause/bin/sleep"
    cp "$agent" "$trees/agent/bin/vtax-agent"
    image tools "$trees/tools" '"/bin/sleep", "1000000"'
    image pause "$trees/pause" '"/bin/sleep", "1000000"'
    image agent "$trees/agent" '"/bin/vtax-agent", "--stdio"'
    rm -r "$trees"
}

cluster() {
    local verb=$1
    shift
    bash "$tests/cluster.sh" "$verb" "$work" "$@"
}

kubectl() {
    cluster run kubectl "$@"
}

# Runs `vtax measure` next to the apiserver, with only the rights in docs/measure.md.
measure() {
    cluster run env VTAX_STATE="$work/state" VTAX_RUN="$work/labs" VTAX_AGENT="$agent" KUBECONFIG="$work/vtax.kubeconfig" \
        "$vtax" measure "$@"
}

fail() {
    echo "pods: $*" >&2
    exit 1
}

# Measures round trips and a stream on one path, and prints the figures: path WHAT FROM TO
path() {
    local result test
    for test in tcp-rr tcp-stream; do
        result=$(measure --json --test $test --samples 7 --duration 500ms --from "pod:shop/$2" --to "pod:shop/$3" 2>"$work/said") ||
            fail "$1 was not measured: $result $(cat "$work/said")"
        printf '%s' "$result" | python3 "$tests/figure.py" "$1"
    done
}

# Expects an exit status and a text in the message: refused STATUS TEXT END
refused() {
    local told status=0
    told=$(measure --to "pod:shop/$3" 2>&1) || status=$?
    [ $status = "$1" ] && printf '%s' "$told" | grep -qF "$2" || fail "pod:shop/$3 gave $status: $told"
    echo "refused as expected: $2"
}

agents() {
    cluster run sh -c 'grep -lx vtax-agent /proc/[0-9]*/comm 2>/dev/null | wc -l'
}

# Starts a long measurement in the background. The file `begun` has its PID in the cluster's namespace.
begin() {
    before=$(agents)
    cluster run env VTAX_STATE="$work/state" VTAX_RUN="$work/labs" VTAX_AGENT="$agent" sh -c \
        'echo $$ >begun; exec "$@"' sh "$vtax" measure --from pod:shop/web --to pod:shop/far --samples 1000 \
        >/dev/null 2>"$work/said" &
    run=$!
    for _ in $(seq 100); do
        [ "$(agents)" -gt "$((before + 1))" ] && break
        sleep 0.2
    done
    [ "$(agents)" -gt "$((before + 1))" ] || fail "no agents were started: $(cat "$work/said")"
    sleep 2
}

leaves_nothing_when_killed() {
    local idle
    begin
    cluster run sh -c 'kill -KILL $(cat begun)'
    for _ in $(seq 100); do
        [ "$(agents)" = "$before" ] && break
        sleep 0.2
    done
    [ "$(agents)" = "$before" ] || fail "agents are left in pods after vtax was killed"
    for pod in web far; do
        idle=$(kubectl exec --namespace shop $pod -- ls -A /tmp /dev/shm)
        ! printf '%s' "$idle" | grep -F vtax || fail "files are left in $pod"
    done
    echo "nothing is left in pods after vtax was killed"
}

ends_when_deleted() {
    local status=0
    begin
    kubectl delete pod --namespace shop far --wait=false
    wait $run || status=$?
    [ $status = 69 ] && grep -qF "pod:shop/far stopped during the run" "$work/said" || fail "status $status: $(cat "$work/said")"
    echo "a pod that is deleted ends the run"
}

# Runs the study `pods` in the namespace `lab`.
study() {
    cluster run env VTAX_STATE="$work/state" VTAX_RUN="$work/labs" VTAX_AGENT="$agent" KUBECONFIG="$work/vtax.kubeconfig" \
        "$vtax" run pods --namespace "${namespace:-lab}" --image vtax.test/tools:1 "$@"
}

created() {
    kubectl get pods,services --all-namespaces --selector app.kubernetes.io/managed-by=vtax --output name
}

# Prints a part of the dry run in YAML: planned permissions|manifest OPTION…
planned() {
    local part=$1
    shift
    study --dry-run --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$part"
}

# Grants the permissions that the dry run prints, and no others: grant NAMESPACE
grant() {
    kubectl create namespace "$1"
    namespace=$1 planned permissions | sed 's/USER/vtax/' | kubectl apply --filename -
}

compares_pods() {
    local rows=host-network,two-nodes,two-nodes-service,one-node,one-node-service
    grant lab
    study --quick --json >"$work/study" 2>"$work/said" || fail "the study has failed: $(cat "$work/said")"
    echo "networks between pods:"
    python3 "$tests/study.py" $rows <"$work/study"
    cluster run env VTAX_STATE="$work/state" "$vtax" report
    [ -z "$(created)" ] || fail "left after the study: $(created)"
}

# The pods satisfy the Pod Security Standard `restricted`, except for those of the row `host-network`.
compares_restricted_pods() {
    local status=0
    grant strict
    kubectl label namespace strict pod-security.kubernetes.io/enforce=restricted
    namespace=strict study --baseline two-nodes --methods one-node --samples 1 --json >"$work/study" 2>"$work/said" ||
        fail "restricted pods were not measured: $(cat "$work/said")"
    python3 "$tests/study.py" two-nodes,one-node <"$work/study"
    namespace=strict study --quick >"$work/study" 2>"$work/said" || status=$?
    [ $status = 69 ] && grep -qF cluster-forbidden "$work/said" || fail "status $status: $(cat "$work/said")"
    [ -z "$(created)" ] || fail "left after the study: $(created)"
    echo "restricted pods were measured, and the network of the nodes was refused"
}

# As many agents as a run has: two pods with the network of their nodes, and three others.
removes_pods_when_killed() {
    local before
    before=$(agents)
    cluster run env VTAX_STATE="$work/state" VTAX_RUN="$work/labs" VTAX_AGENT="$agent" KUBECONFIG="$work/vtax.kubeconfig" sh -c \
        'echo $$ >begun; exec "$@"' sh "$vtax" run pods --namespace lab --image vtax.test/tools:1 --samples 1000 \
        >/dev/null 2>"$work/said" &
    for _ in $(seq 300); do
        [ "$(agents)" -ge "$((before + 5))" ] && break
        sleep 0.2
    done
    [ "$(created | wc -l)" = 7 ] || fail "not created: $(created) $(cat "$work/said")"
    cluster run sh -c 'kill -KILL $(cat begun)'
    for _ in $(seq 100); do
        [ -z "$(created)" ] && break
        sleep 0.2
    done
    [ -z "$(created)" ] || fail "left after vtax was killed: $(created)"
    echo "created pods and services are removed after vtax was killed"
}

sleepers() {
    cluster run pgrep --count --full "^sleep $1\$" || true
}

# The kubelet of a node ends the pods at their deadline even if nothing reaches it any more.
ends_pods_when_cut_off() {
    local life
    planned manifest --baseline two-nodes --methods one-node >"$work/manifest"
    life=$(sed -n 's/.*sleep, "\([0-9]*\)".*/\1/p' "$work/manifest" | head -n 1)
    sed -i 's/activeDeadlineSeconds: .*/activeDeadlineSeconds: 20/' "$work/manifest"
    kubectl create --filename - <"$work/manifest"
    kubectl wait --namespace lab --for condition=Ready pod --selector app.kubernetes.io/managed-by=vtax --timeout 15s
    cluster run ip link set port1 down
    [ "$(sleepers "$life")" = 3 ] || fail "$(sleepers "$life") pods instead of 3 run"
    for _ in $(seq 60); do
        [ "$(sleepers "$life")" = 0 ] && break
        sleep 1
    done
    [ "$(sleepers "$life")" = 0 ] || fail "pods on a node that is cut off have outlived their deadline"
    cluster run ip link set port1 up
    kubectl delete pods,services --namespace lab --selector app.kubernetes.io/managed-by=vtax
    echo "pods on a node that is cut off end at their deadline"
}

trap 'cluster down; rm -rf "$work"' EXIT
program
cp "$program" "$work/cluster"
images
cluster up
sed 's/current-context: admin/current-context: vtax/' "$work/kubeconfig" >"$work/vtax.kubeconfig"
kubectl apply --filename "$tests/pods.yaml"
kubectl wait --namespace shop --for condition=Ready pod --all --timeout 60s
compares_pods
compares_restricted_pods
removes_pods_when_killed
ends_pods_when_cut_off
path "one node" web near
path "two nodes" web far
path "two nodes, host network" host-web host-db
path "one node, limited to 0.1 CPU" web limited/db
path "one node, an image with the agent" web limited/agent
refused 2 "pod-container" limited
refused 69 "pod-without-shell" limited/bare
refused 2 "no-such-pod" nobody
kubectl delete rolebinding --namespace shop vtax
refused 69 "pod-forbidden" far
kubectl apply --filename "$tests/pods.yaml"
cluster run ip link set port2 down
refused 69 "cluster-silent" host-db
cluster run ip link set port2 up
leaves_nothing_when_killed
ends_when_deleted

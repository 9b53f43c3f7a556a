#!/bin/bash
# A Kubernetes cluster of two nodes on this machine, with an apiserver, a controller manager, etcd, and a kubelet,
# kube-proxy and containerd for each node. Everything runs in separate namespaces (network, mount, PID, UTS), so nothing on the machine is changed except
# for cgroups `vtax-pods-…`, which `down` removes. There is no scheduler: pods specify their node.
#
#   cluster.sh up DIRECTORY        DIRECTORY has `cluster` (tests/pods/cluster) and images (*.tar); returns when the
#                                  nodes are ready
#   cluster.sh run DIRECTORY WORD… runs a command next to the apiserver, with kubectl in the PATH
#   cluster.sh down DIRECTORY
#
# Requires root, etcd, containerd, runc, CNI plugins (CNI: their directory), iproute2, nftables and openssl.
set -eu
verb=$1 work=$(realpath "$2") self=$(realpath "$0")
shift 2
nodes="1 2"
controllers="cpu cpuacct cpuset memory devices freezer blkio pids systemd"
group=vtax-pods-$(stat -c %i "$work")
api=10.200.0.1
export PATH=$work/bin:$PATH KUBECONFIG=$work/kubeconfig CNI=${CNI:-/usr/lib/cni}

# Waits until a command succeeds: await SECONDS COMMAND…
await() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { echo "cluster: not in time: $*; see $work/log" >&2; return 1; }
        sleep 0.2
    done
}

inside() {
    nsenter --target "$(cat "$work/pid")" --mount --net --uts --pid env -C "$work" "$@"
}

are_ready() {
    [ "$(inside kubectl get nodes --no-headers | grep -cw Ready)" = "$(echo $nodes | wc -w)" ] &&
        [ -z "$(inside kubectl get nodes --output 'jsonpath={.items[*].spec.taints}')" ]
}

up() {
    down
    rm -rf "$work/log"
    mkdir -p "$work/log" "$work/bin"
    printf '#!/bin/sh\nexec %s/cluster kubectl "$@"\n' "$work" >"$work/bin/kubectl"
    chmod 755 "$work/bin/kubectl"
    openssl genrsa -out "$work/key" 2048 2>/dev/null
    printf '%s-admin,admin,1,"system:masters"\n%s-vtax,vtax,2,""\n' "$group" "$group" >"$work/tokens"
    write_configuration
    setsid unshare --mount --net --pid --uts --fork --kill-child --mount-proc --propagation private \
        bash "$self" hub "$work" >"$work/log/hub" 2>&1 </dev/null &
    local parent=$!
    await 10 pgrep -P $parent
    pgrep -P $parent >"$work/pid"
    await 90 are_ready
}

write_configuration() {
    cat >"$work/kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: pods, cluster: {server: "https://$api:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $group-admin}}, {name: vtax, user: {token: $group-vtax}}]
contexts: [{name: admin, context: {cluster: pods, user: admin}}, {name: vtax, context: {cluster: pods, user: vtax}}]
current-context: admin
CONFIG
    cat >"$work/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
maxOpenFiles: 20000
oomScoreAdj: 0
evictionHard: {memory.available: 1Mi}
imageGCHighThresholdPercent: 100
CONFIG
    cat >"$work/proxy.yaml" <<CONFIG
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $work/kubeconfig}
clusterCIDR: 10.201.0.0/16
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
CONFIG
    cat >"$work/containerd.toml" <<CONFIG
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "vtax.test/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI"
    conf_dir = "/run/cni"
CONFIG
}

# Kills the first process of the PID namespace, with which the kernel kills all others of the cluster.
down() {
    if [ -e "$work/pid" ]; then
        local first
        first=$(cat "$work/pid")
        if grep -qaF "$self" "/proc/$first/cmdline" 2>/dev/null; then
            kill -KILL "$first"
        fi
    fi
    for _ in $(seq 40); do
        ls -d /sys/fs/cgroup/*/"$group"-* >/dev/null 2>&1 || break
        find /sys/fs/cgroup/*/"$group"-* -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.25
    done
    rm -rf "$work/pid" "$work"/node[0-9]*
}

# The first process. Starts etcd and apiserver, and connects the nodes by a bridge.
hub() {
    # The copied mounts would keep network namespaces of other programs alive after their removal.
    awk '$3 == "nsfs" { print $2 }' /proc/mounts | xargs --no-run-if-empty umount --lazy
    mount -t tmpfs tmpfs /run
    mkdir -p /run/netns /run/etcd
    hide_sysctls
    cd "$work"
    ip link set lo up
    ip link add nodes type bridge
    ip addr add $api/24 dev nodes
    ip link set nodes up
    etcd --data-dir /run/etcd --unsafe-no-fsync >log/etcd 2>&1 &
    ./cluster apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address $api --bind-address $api --secure-port 6443 \
        --cert-dir /run/apiserver --token-auth-file tokens --authorization-mode RBAC --allow-privileged \
        --service-account-issuer https://pods --service-account-key-file key --service-account-signing-key-file key \
        --service-cluster-ip-range 10.202.0.0/16 --disable-admission-plugins ServiceAccount \
        --kubelet-preferred-address-types InternalIP >log/apiserver 2>&1 &
    # Finds the pods of each service, and removes the taint that keeps pods from a new node.
    (await 60 kubectl get --raw /readyz && exec ./cluster manager --kubeconfig kubeconfig \
        --service-account-private-key-file key --leader-elect=false --cert-dir /run/manager) >log/manager 2>&1 &
    for node in $nodes; do
        ip netns add node$node
        ip link add port$node type veth peer name eth0 netns node$node
        ip link set port$node master nodes up
        # `ip netns exec` would mount another /sys, without cgroups.
        nsenter --net=/run/netns/node$node unshare --mount --uts --propagation private \
            bash "$self" node "$work" $node >log/node$node 2>&1 &
    done
    # If the test is killed, the cluster ends after this time.
    sleep 3000
}

# kubelet sets sysctls of the whole machine. Files with the values that it requires are mounted over them.
hide_sysctls() {
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        local file=/run/sysctl/${setting%%=*}
        mkdir -p "$(dirname "$file")"
        echo "${setting#*=}" >"$file"
        mount --bind "$file" "/proc/sys/${setting%%=*}"
    done
}

# A node: containerd and kubelet, with routes to the pods of the other nodes.
node() {
    local node=$1
    cd "$work"
    hostname node$node
    mount -t tmpfs tmpfs /run
    mkdir /run/cni
    for directory in /var/lib /var/log; do
        mkdir -p "node$node$directory"
        mount --bind "node$node$directory" $directory
    done
    ip link set lo up
    ip addr add 10.200.0.1$node/24 dev eth0
    ip link set eth0 up
    ip route add default via $api
    echo 1 >/proc/sys/net/ipv4/ip_forward
    for other in $nodes; do
        [ $other = $node ] || ip route add 10.201.$other.0/24 via 10.200.0.1$other
    done
    enter_cgroups $node
    cat >/run/cni/10-pods.conflist <<CONFIG
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
 "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "10.201.$node.0/24"}]],
          "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONFIG
    containerd --config containerd.toml >log/containerd$node 2>&1 &
    await 20 ctr version
    for image in *.tar; do
        ctr --namespace k8s.io images import "$image"
    done
    await 60 kubectl get --raw /readyz
    ./cluster proxy --config proxy.yaml --hostname-override node$node >log/proxy$node 2>&1 &
    ./cluster kubelet --config kubelet.yaml --kubeconfig kubeconfig --hostname-override node$node \
        --node-ip 10.200.0.1$node --cgroup-root "/$group-$node" >log/kubelet$node 2>&1
}

# kubelet must be in a cgroup of the same name in all controllers.
enter_cgroups() {
    for controller in $controllers; do
        local parent=/sys/fs/cgroup/$controller own=/sys/fs/cgroup/$controller/$group-$1
        mkdir -p "$own"
        if [ $controller = cpuset ]; then
            cat $parent/cpuset.cpus >"$own/cpuset.cpus"
            cat $parent/cpuset.mems >"$own/cpuset.mems"
        fi
        echo $$ >"$own/cgroup.procs"
    done
}

case $verb in
up) up ;;
run) inside "$@" ;;
down) down ;;
hub) hub ;;
node) node "$@" ;;
*) echo "cluster: unknown verb $verb" >&2; exit 2 ;;
esac

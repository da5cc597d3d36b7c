# shellcheck shell=bash
# The network of private-cluster with NETNS=yes. The script sources this file after rabbitmq.sh.
#
# Each end has its own network, and a bridge connects the networks. An end is a node (1, 2 or 3), this machine (client),
# or the name of another end that `end` has created. The caller sets nodes and c, the state folder. It contains:
#   netns            K, the number of the bridge and of the network
#   hosts            the /etc/hosts of all ends
#   N/, ends/NAME/   the files of an end: ns.pid has the PID of the process that keeps its namespaces alive, number has
#                    the last byte of its address, and wired exists when the end is ready
nodes=${nodes:-} c=${c:-}

namespaces() { [ -e "$c/netns" ]; }
bridge() { echo "holdfast-$(<"$c/netns")"; }
net() { echo "10.77.$(<"$c/netns")"; } # the first three bytes of the /24

# make_bridge: creates a bridge with an address that no other instance has. The alias of the bridge names its owner.
make_bridge() {
  local k n
  is_root || die "NETNS needs root"
  if namespaces && our_bridge; then return; fi
  for k in ${CLUSTER_NET:-$(cat "$c/netns" 2>/dev/null || true) $(seq 0 99)}; do
    if ip link add "holdfast-$k" type bridge 2>/dev/null; then
      echo "$k" >"$c/netns"
      # By default a bridge takes the lowest MAC address of its ports. Then a new end could make the bridge unreachable.
      ip link set "$(bridge)" alias "$c" address 02:00:00:00:00:01
      ip addr add "$(net).1/24" dev "$(bridge)"
      ip link set "$(bridge)" up
      echo '127.0.0.1 localhost' >"$c/hosts"
      for n in $nodes; do echo "$(net).1$n n$n" >>"$c/hosts"; done
      return
    fi
  done
  die "the bridge holdfast-${CLUSTER_NET:-0} exists already, or this system cannot create one"
}
our_bridge() { [ "$(cat "/sys/class/net/$(bridge)/ifalias" 2>/dev/null)" = "$c" ]; }

# --- Ends --------------------------------------------------------------------------------------------------------

place() { case $1 in [123]) echo "$c/$1" ;; *) echo "$c/ends/$1" ;; esac; }
further() { ls "$c/ends" 2>/dev/null || true; }
number() { case $1 in client) echo 1 ;; [123]) echo "1$1" ;; *) cat "$c/ends/$1/number" ;; esac; }
address() { echo "$(net).$(number "$1")"; }
device() { if [ "$1" = client ]; then bridge; else echo e0; fi; }
holds() { alive "$(place "$1")/ns.pid" "$(place "$1")" && [ -e "$(place "$1")/wired" ]; }
holder() { pid_of "$(place "$1")/ns.pid"; }

# known END...: fails unless the ends exist
known() {
  local e
  namespaces || die "start it with NETNS=yes"
  for e; do
    case $e in
    client) ;;
    [123]) holds "$e" || die "not running: run \`up\` first" ;;
    *) [[ $e =~ ^[a-z][a-z0-9]*$ ]] || usage_error; holds "$e" || die "there is no end $e: create it with \`end $e\`" ;;
    esac
  done
}

# make_namespace END HOSTNAME [-m]: creates namespaces for the network and the host name, and with -m for mounts,
# because of /etc/hosts. The namespaces have no names, so they disappear with their last process.
make_namespace() {
  local pid card kinds=(-n -u "${@:3}")
  dir=$(place "$1")
  mkdir -p "$dir"
  if holds "$1"; then return; fi
  end "$dir/ns.pid" "$dir" KILL 2 # left by an interrupted attempt
  rm -f "$dir/wired"
  card=$(bridge)-$(number "$1")
  ip link del "$card" 2>/dev/null || true
  # shellcheck disable=SC2034 # spawn reads both
  env=(env -i PATH="$PATH" HOLDFAST_STATE="$dir") inside=()
  spawn ns unshare "${kinds[@]}" sleep infinity
  pid=$(pid_of "$dir/ns.pid")
  until [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sleep ]; do # before that, the namespaces are not complete
    kill -0 "$pid" 2>/dev/null || { cat "$dir/ns.out" >&2; die "this system cannot create a namespace"; }
    sleep 0.02
  done
  ip link add "$card" type veth peer name e0 netns "$pid"
  ip link set "$card" master "$(bridge)" up
  nsenter -t "$pid" "${kinds[@]}" sh -ec "hostname $2; ip link set lo up; ip addr add $(address "$1")/24 dev e0; ip link set e0 up"
  if [ $# = 3 ]; then nsenter -t "$pid" -m mount --bind "$c/hosts" /etc/hosts; fi
  touch "$dir/wired"
}

# make_end NAME: creates an end. Several calls may run at the same time.
make_end() {
  local n
  [[ $1 =~ ^[a-z][a-z0-9]*$ ]] || usage_error
  [[ ! $1 =~ ^(client|localhost|n[123])$ ]] || die "$1 is a reserved name"
  if ! namespaces || ! our_bridge; then die "run \`up\` with NETNS=yes first"; fi
  {
    flock 8
    mkdir -p "$c/ends/$1"
    if [ ! -s "$c/ends/$1/number" ]; then
      # Two digits, because with three the name of the network interface could be too long.
      for ((n = 21; n < 100; n++)); do grep -qsx "$n" "$c"/ends/*/number || break; done
      ((n < 100)) || die "there are too many ends"
      echo "$n" >"$c/ends/$1/number"
    fi
    make_namespace "$1" "$1" 8>&- # the process in the namespace must not inherit the lock
    grep -q " $1\$" "$c/hosts" || echo "$(address "$1") $1" >>"$c/hosts"
  } 8>>"$c/ends.lock"
}

# become END CMD...: replaces this script with CMD in the network of an end, with the environment of this script. CMD
# gets a new mount namespace for /etc/hosts, because an older one would lack later mounts.
become() {
  local environment
  known "$1"
  mapfile -d '' -t environment <"/proc/$$/environ"
  if [ "$1" = client ]; then exec env -i "${environment[@]}" "${@:2}"; fi
  # shellcheck disable=SC2016 # the inner shell expands these
  exec nsenter -t "$(holder "$1")" -n -u unshare -m --propagation slave \
    sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$c/hosts" env -i "${environment[@]}" "${@:2}"
}

remove_network() {
  local e
  our_bridge || return 0
  for e in $nodes $(further); do
    end "$(place "$e")/ns.pid" "$(place "$e")" KILL 2
    ip link del "$(bridge)-$(number "$e")" 2>/dev/null || true # even if a process still runs in the namespace
  done
  rm -rf "$c/ends"
  ip link del "$(bridge)" 2>/dev/null || true
}

# --- Cuts --------------------------------------------------------------------------------------------------------

# of END CMD...: runs CMD in the network of an end
of() { if [ "$1" = client ]; then "${@:2}"; else nsenter -t "$(holder "$1")" -n "${@:2}"; fi; }

# drop A B: drops packets from A to B with a neighbor entry whose MAC address does not exist. Unlike a blackhole route,
# the entry causes no error for the sender. A still answers ARP requests, so packets from B to A arrive.
drop() { of "$1" ip neigh replace "$(address "$2")" lladdr 02:00:00:00:00:fe dev "$(device "$1")" nud permanent; }
undrop() { of "$1" ip neigh del "$(address "$2")" dev "$(device "$1")" 2>/dev/null || true; }
heal_all() {
  local e
  for e in $nodes client $(further); do
    if [ "$e" = client ] || holds "$e"; then of "$e" ip -4 neigh flush dev "$(device "$e")" nud permanent; fi
  done
}

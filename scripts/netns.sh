# shellcheck shell=bash
# The network of private-cluster with NETNS=yes; sourced after rabbitmq.sh, never run.
#
# Each end has a network of its own, and a bridge joins them. An end is 1, 2 or 3, a node; client, which is this machine;
# or the name of a further one, which `end` has made. The caller sets c, the folder of all state, and nodes. In there:
#   netns            K, which says the bridge and the addresses
#   hosts            the /etc/hosts of all ends
#   N/, ends/NAME/   of an end: ns.pid, of the process that holds its namespaces; number, the last byte of its address;
#                    wired, once it is ready
nodes=${nodes:-} c=${c:-}

namespaces() { [ -e "$c/netns" ]; }
bridge() { echo "holdfast-$(<"$c/netns")"; }
net() { echo "10.77.$(<"$c/netns")"; } # of a /24

# make_bridge: with an address that no other instance has; whoever makes the bridge has it, and its alias says who.
make_bridge() {
  local k n
  is_root || die "NETNS needs root"
  if namespaces && our_bridge; then return; fi
  for k in ${CLUSTER_NET:-$(cat "$c/netns" 2>/dev/null || true) $(seq 0 99)}; do
    if ip link add "holdfast-$k" type bridge 2>/dev/null; then
      echo "$k" >"$c/netns"
      # Of its own accord a bridge takes the lowest address of its cards: a new end would make it unreachable for a while.
      ip link set "$(bridge)" alias "$c" address 02:00:00:00:00:01
      ip addr add "$(net).1/24" dev "$(bridge)"
      ip link set "$(bridge)" up
      echo '127.0.0.1 localhost' >"$c/hosts"
      for n in $nodes; do echo "$(net).1$n n$n" >>"$c/hosts"; done
      return
    fi
  done
  die "the bridge holdfast-${CLUSTER_NET:-0} exists already, or none can be made here"
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

# known END...: that they are there
known() {
  local e
  namespaces || die "start it with NETNS=yes"
  for e; do
    case $e in
    client) ;;
    [123]) holds "$e" || die "not running: run \`up\` first" ;;
    *) [[ $e =~ ^[a-z][a-z0-9]*$ ]] || usage_error; holds "$e" || die "there is no end $e: make it with \`end $e\`" ;;
    esac
  done
}

# make_namespace END HOSTNAME [-m]: of network and host name, and with -m of mounts, for the sake of /etc/hosts. They have
# no names, so nothing of them is left outside this folder when the last process in them has ended.
make_namespace() {
  local pid card kinds=(-n -u "${@:3}")
  dir=$(place "$1")
  mkdir -p "$dir"
  if holds "$1"; then return; fi
  end "$dir/ns.pid" "$dir" KILL 2 # of an attempt that was interrupted
  rm -f "$dir/wired"
  card=$(bridge)-$(number "$1")
  ip link del "$card" 2>/dev/null || true
  # shellcheck disable=SC2034 # spawn reads both
  env=(env -i PATH="$PATH" HOLDFAST_STATE="$dir") inside=()
  spawn ns unshare "${kinds[@]}" sleep infinity
  pid=$(pid_of "$dir/ns.pid")
  until [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sleep ]; do # until then it is still making them
    kill -0 "$pid" 2>/dev/null || { cat "$dir/ns.out" >&2; die "no namespace can be made here"; }
    sleep 0.02
  done
  ip link add "$card" type veth peer name e0 netns "$pid"
  ip link set "$card" master "$(bridge)" up
  nsenter -t "$pid" "${kinds[@]}" sh -ec "hostname $2; ip link set lo up; ip addr add $(address "$1")/24 dev e0; ip link set e0 up"
  if [ $# = 3 ]; then nsenter -t "$pid" -m mount --bind "$c/hosts" /etc/hosts; fi
  touch "$dir/wired"
}

# make_end NAME. Several may be made at the same time.
make_end() {
  local n
  [[ $1 =~ ^[a-z][a-z0-9]*$ ]] || usage_error
  [[ ! $1 =~ ^(client|localhost|n[123])$ ]] || die "$1 is the name of something else"
  if ! namespaces || ! our_bridge; then die "run \`up\` with NETNS=yes first"; fi
  {
    flock 8
    mkdir -p "$c/ends/$1"
    if [ ! -s "$c/ends/$1/number" ]; then
      # Two digits: with a third one the name of its card could be too long.
      for ((n = 21; n < 100; n++)); do grep -qsx "$n" "$c"/ends/*/number || break; done
      ((n < 100)) || die "there are too many ends"
      echo "$n" >"$c/ends/$1/number"
    fi
    make_namespace "$1" "$1" 8>&- # whoever holds the namespace does not hold the lock
    grep -q " $1\$" "$c/hosts" || echo "$(address "$1") $1" >>"$c/hosts"
  } 8>>"$c/ends.lock"
}

# become END CMD...: replaces this script by CMD in there, in the environment that the script was given. A mount
# namespace is for /etc/hosts alone and made for each command anew: one made earlier would lack what was mounted since.
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
    ip link del "$(bridge)-$(number "$e")" 2>/dev/null || true # even if a process still runs in there
  done
  rm -rf "$c/ends"
  ip link del "$(bridge)" 2>/dev/null || true
}

# --- Cuts --------------------------------------------------------------------------------------------------------

of() { if [ "$1" = client ]; then "${@:2}"; else nsenter -t "$(holder "$1")" -n "${@:2}"; fi; } # of END CMD...: in its network

# A neighbour with an address that no card has: packets leave and arrive nowhere, and unlike with a route into a
# black hole, their sender is told nothing. Requests for the address are still answered, so the other way stays open.
drop() { of "$1" ip neigh replace "$(address "$2")" lladdr 02:00:00:00:00:fe dev "$(device "$1")" nud permanent; }
undrop() { of "$1" ip neigh del "$(address "$2")" dev "$(device "$1")" 2>/dev/null || true; }
heal_all() {
  local e
  for e in $nodes client $(further); do
    if [ "$e" = client ] || holds "$e"; then of "$e" ip -4 neigh flush dev "$(device "$e")" nud permanent; fi
  done
}

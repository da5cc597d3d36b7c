# shellcheck shell=bash
# Functions for the scripts that run RabbitMQ nodes, which source this file after lib.sh.
#
# These variables describe a node:
#   dir      state folder; also the mark of its processes, see alive
#   name     Erlang name
#   ip       the only address on which it listens
#   amqp     port for clients
#   dist     port of the Erlang distribution
#   epmd     port of epmd
#   tools    first of the 50 ports for rabbitmqctl
#   inside   command prefix for its programs, for example to enter a network namespace
#   at       path of dir as these programs see it
#   bin      folder of RabbitMQ's own scripts
dir='' name='' ip=127.0.0.1 amqp='' dist='' epmd='' tools='' inside=() at='' bin=''

# installed: finds the binaries, and exits with 3 if there are none. With RABBITMQ_ROOT, the node runs with chroot in
# the system in that folder. The mounts of /proc and of the state are in a mount namespace that ends with the process.
# So no mount remains, and both folders can be deleted at any time.
installed() {
  at=$dir
  if [ -z "${RABBITMQ_ROOT:-}" ]; then
    bin=$(rabbitmq_bin) || { note "RabbitMQ is not installed: apt-get install rabbitmq-server, or set RABBITMQ_BIN"; exit 3; }
    return
  fi
  [ -e "$RABBITMQ_ROOT/.ready" ] || { note "no RabbitMQ in $RABBITMQ_ROOT: run private-rabbitmq4 build"; exit 3; }
  is_root || die "RABBITMQ_ROOT needs root"
  bin=/usr/lib/rabbitmq/bin at=/node
  # shellcheck disable=SC2016 # the inner shell expands these
  inside=(unshare -m sh -c 'mount -t proc proc "$0/proc" && mount --bind "$1" "$0/node" && shift && exec chroot "$0" "$@"'
    "$RABBITMQ_ROOT" "$dir")
}

# The scripts write their own PID files, because RabbitMQ deletes its PID file (own.pid) when a graceful stop begins.
node_runs() { alive "$dir/node.pid" "$dir"; }

# environment: sets env to the complete environment of RabbitMQ, which uses neither /etc/rabbitmq nor the caller's
# environment.
environment() {
  local only="-kernel inet_dist_use_interface {${ip//./,}}" # by default the Erlang distribution listens on all addresses
  env=(env -i PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 HOME="$at/home" HOLDFAST_STATE="$dir"
    RUNNING_UNDER_SYSTEMD=1 # makes the start script replace itself with the node, so that the PID stays the same
    ERL_EPMD_PORT="$epmd" ERL_EPMD_ADDRESS="$ip" ERL_CRASH_DUMP="$at/crash.dump"
    RABBITMQ_NODENAME="$name" RABBITMQ_DIST_PORT="$dist" RABBITMQ_PID_FILE="$at/own.pid"
    RABBITMQ_CONF_ENV_FILE="$at/none" RABBITMQ_CONFIG_FILE="$at/rabbitmq.conf"
    RABBITMQ_ADVANCED_CONFIG_FILE="$at/advanced.config" RABBITMQ_ENABLED_PLUGINS_FILE="$at/enabled_plugins"
    RABBITMQ_GENERATED_CONFIG_DIR="$at/generated" RABBITMQ_MNESIA_BASE="$at/db" RABBITMQ_LOG_BASE="$at/log"
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$only" RABBITMQ_CTL_ERL_ARGS="$only"
    RABBITMQ_CTL_DIST_PORT_MIN="$tools" RABBITMQ_CTL_DIST_PORT_MAX=$((tools + 49)))
}

# configure: writes the configuration. The nodes of a cluster share the cookie RB_COOKIE. Without it, the node gets its
# own cookie.
configure() {
  mkdir -p "$dir/home"
  if [ ! -s "$dir/home/.erlang.cookie" ]; then
    printf %s "${RB_COOKIE:-$(random)}" >"$dir/home/.erlang.cookie"
    chmod 400 "$dir/home/.erlang.cookie"
  fi
  echo "[]." >"$dir/enabled_plugins"
  cat >"$dir/advanced.config" <<CONF
[{rabbit, [{channel_tick_interval, ${RB_CHANNEL_TICK:-60000}}]}, {kernel, [{net_ticktime, ${RB_TICKTIME:-60}}]}].
CONF
  cat >"$dir/rabbitmq.conf" <<CONF
listeners.tcp.1 = $ip:$amqp
loopback_users = none
heartbeat = ${RB_HEARTBEAT:-10}
vm_memory_high_watermark.absolute = ${RB_MEMORY:-1GB}
disk_free_limit.absolute = 100MB
raft.wal_max_size_bytes = 64000000
${RB_CONSUMER_TIMEOUT:+consumer_timeout = $RB_CONSUMER_TIMEOUT}
${RB_CONF:-}
CONF
}
random() { od -An -tx1 -N16 /dev/urandom | tr -d ' \n'; }

# spawn NAME CMD...: starts CMD in a separate session, so that Ctrl-C in the terminal does not reach it, and writes its
# PID to NAME.pid. Returns when the process has the mark or has ended.
spawn() {
  setsid "${env[@]}" "${inside[@]}" "${@:2}" </dev/null >>"$dir/$1.out" 2>&1 &
  echo $! >"$dir/$1.pid"
  until alive "$dir/$1.pid" "$dir" || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
}

start_node() {
  : >"$dir/node.out"
  spawn node "$bin/rabbitmq-server"
}

# If no epmd answers, the node and rabbitmqctl start one that listens on all addresses and has no PID file. So this
# script starts its own epmd first. It also reserves the block of ports, because no other clone can start an epmd there.
start_epmd() {
  local i
  alive "$dir/epmd.pid" "$dir" && return 0
  environment
  spawn epmd epmd
  for ((i = 0; i < 40; i++)); do
    sleep 0.05
    alive "$dir/epmd.pid" "$dir" || return 1
    ! listens "$ip" "$epmd" || break
  done
  sleep 0.1 # if another epmd has the port, this one ends
  alive "$dir/epmd.pid" "$dir"
}

ctl() {
  # If the node is down, epmd may be down too, and rabbitmqctl would start its own.
  node_runs || die "not running: run \`up\` first"
  environment
  "${env[@]}" "${inside[@]}" "$bin/rabbitmqctl" --silent "$@" </dev/null
}

# answers: whether the broker accepts clients. It then answers a protocol header with a method frame, whose first byte
# is 1. This check saves one or two seconds compared with `rabbitmqctl wait`.
answers() {
  local byte
  byte=$({ exec 3<>"/dev/tcp/$ip/$amqp" && printf 'AMQP\0\0\11\1' >&3 && timeout 2 head -c 1 <&3; } 2>/dev/null | od -An -tu1) || return 1
  [ "${byte// /}" = 1 ]
}

await_node() {
  local i
  for ((i = 0; i < 900; i++)); do
    answers && return 0
    node_runs || break
    sleep 0.1
  done
  tail -n 20 "$dir/node.out" >&2
  die "RabbitMQ does not start; logs are in $dir/log"
}

# shellcheck shell=bash
# Shared by the scripts that run RabbitMQ nodes; sourced after lib.sh, never run.
#
# A node is what these variables say:
#   dir      all of its state; also the mark of its processes, see alive
#   name     its name in Erlang
#   ip       the only address it listens on
#   amqp     its ports: for clients, for Erlang's distribution, of its epmd, and the first of 50 for rabbitmqctl
#   dist epmd tools
#   inside   a command prefix that puts its programs where they belong, such as another network namespace
#   at       dir as these programs see it
#   bin      the folder of RabbitMQ's own scripts
dir='' name='' ip=127.0.0.1 amqp='' dist='' epmd='' tools='' inside=() at='' bin=''

# installed: finds the binaries, exit code 3 if there are none. With RABBITMQ_ROOT they are those of another system in
# that folder, and the node runs in there. Its /proc and its state are mounted in a mount namespace of its own, which
# ends with the process: nothing stays mounted, and both folders can be removed at any time.
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

# The pid files are ours: RabbitMQ deletes its own one (own.pid) at the beginning of a graceful stop.
node_runs() { alive "$dir/node.pid" "$dir"; }

# environment: fills env. Everything RabbitMQ reads comes from here and nothing from /etc/rabbitmq or the caller.
environment() {
  local only="-kernel inet_dist_use_interface {${ip//./,}}" # Erlang's distribution listens on all addresses by default
  env=(env -i PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 HOME="$at/home" HOLDFAST_STATE="$dir"
    RUNNING_UNDER_SYSTEMD=1 # the start script then replaces itself by the node, so that the pid we know is the node's
    ERL_EPMD_PORT="$epmd" ERL_EPMD_ADDRESS="$ip" ERL_CRASH_DUMP="$at/crash.dump"
    RABBITMQ_NODENAME="$name" RABBITMQ_DIST_PORT="$dist" RABBITMQ_PID_FILE="$at/own.pid"
    RABBITMQ_CONF_ENV_FILE="$at/none" RABBITMQ_CONFIG_FILE="$at/rabbitmq.conf"
    RABBITMQ_ADVANCED_CONFIG_FILE="$at/advanced.config" RABBITMQ_ENABLED_PLUGINS_FILE="$at/enabled_plugins"
    RABBITMQ_GENERATED_CONFIG_DIR="$at/generated" RABBITMQ_MNESIA_BASE="$at/db" RABBITMQ_LOG_BASE="$at/log"
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$only" RABBITMQ_CTL_ERL_ARGS="$only"
    RABBITMQ_CTL_DIST_PORT_MIN="$tools" RABBITMQ_CTL_DIST_PORT_MAX=$((tools + 49)))
}

# configure: the nodes of a cluster share a cookie, RB_COOKIE; any other one makes its own.
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

# spawn NAME CMD...: in a session of its own, so that a Ctrl-C in the terminal does not reach it; pid in NAME.pid.
# Returns once the process carries our mark, or is gone again.
spawn() {
  setsid "${env[@]}" "${inside[@]}" "${@:2}" </dev/null >>"$dir/$1.out" 2>&1 &
  echo $! >"$dir/$1.pid"
  until alive "$dir/$1.pid" "$dir" || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
}

start_node() {
  : >"$dir/node.out"
  spawn node "$bin/rabbitmq-server"
}

# Node and rabbitmqctl start an epmd when none answers, which listens everywhere and has no pid file: ours comes first,
# in the foreground. It holds its port from now on, so it also reserves the block of ports against another clone.
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
  sleep 0.1 # whose epmd was it that answered? Ours ends when the port is taken.
  alive "$dir/epmd.pid" "$dir"
}

ctl() {
  # Without our epmd rabbitmqctl would start one.
  node_runs || die "not running: run \`up\` first"
  environment
  "${env[@]}" "${inside[@]}" "$bin/rabbitmqctl" --silent "$@" </dev/null
}

# The broker answers a protocol header with a method frame (first byte 1) once it takes clients. Asking it directly
# saves the second or two that `rabbitmqctl wait` needs to start.
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

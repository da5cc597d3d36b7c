# shellcheck shell=bash
# Shared by the scripts in this folder; sourced, never run.

prog=${0##*/}
note() { printf '%s: %s\n' "$prog" "$*" >&2; }
die() { note "$@"; exit 1; }

# The comment at the top of a script is its help text.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }
usage_error() { usage >&2; exit 2; }

is_root() { [ "$(id -u)" = 0 ]; }

# --- Where the servers are installed -----------------------------------------------------------------------------

# The newest PostgreSQL with both server and tools. Debian keeps them out of PATH; PG_BIN overrides.
postgres_bin() {
  local d
  for d in ${PG_BIN:+"$PG_BIN"} $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) /usr/local/pgsql/bin; do
    if [ -x "$d/initdb" ] && [ -x "$d/postgres" ] && [ -x "$d/pg_ctl" ]; then echo "$d"; return; fi
  done
  if d=$(command -v initdb) && [ -x "$(dirname "$d")/pg_ctl" ]; then dirname "$d"; else return 1; fi
}

# RabbitMQ's own scripts, not Debian's wrappers in /usr/sbin, which insist on the user rabbitmq. RABBITMQ_BIN overrides.
rabbitmq_bin() {
  local d
  for d in ${RABBITMQ_BIN:+"$RABBITMQ_BIN"} /usr/lib/rabbitmq/bin /opt/rabbitmq/sbin; do
    if [ -x "$d/rabbitmq-server" ] && [ -x "$d/rabbitmqctl" ] && command -v epmd >/dev/null; then echo "$d"; return; fi
  done
  return 1
}

# --- Ports -------------------------------------------------------------------------------------------------------

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; } # listens IP PORT
port_taken() { listens 127.0.0.1 "$1"; }

# free_block BASE COUNT: the first BASE + n*200 whose COUNT ports are all free. All stay below 32768, where Linux
# begins to hand out ports to outgoing connections. With bases 25432 and 25672 the two kinds never overlap.
free_block() {
  local base=$1 i
  while ((base + 100 < 32768)); do
    for ((i = 0; i < $2; i++)); do
      if port_taken $((base + i)); then base=$((base + 200)); continue 2; fi
    done
    echo "$base"
    return
  done
  die "no free port from $1 up; set PG_PORT or RABBIT_PORT"
}

# --- Processes ---------------------------------------------------------------------------------------------------
# Every process is started with HOLDFAST_STATE=<its state folder> in its environment, and a pid file counts only while
# its process carries that mark: a pid that was reused by somebody else is never signalled.

pid_of() { head -n 1 "$1" 2>/dev/null; }

as_owner=() # prefix for looking at a process of another user: root needs it in containers, which lack CAP_SYS_PTRACE

alive() { # alive PIDFILE STATE
  local pid environ i
  pid=$(pid_of "$1") && [ -n "$pid" ] || return 1
  environ=/proc/$pid/environ
  for ((i = 0; i < 20; i++)); do
    if "${as_owner[@]}" grep -qzxF -- "HOLDFAST_STATE=$2" "$environ" 2>/dev/null; then return 0; fi
    if [ ! -e "$environ" ] || zombie "$pid"; then return 1; fi
    # Empty for a moment while the process replaces itself by another program, as RabbitMQ's start scripts do.
    if "${as_owner[@]}" grep -qz '' "$environ" 2>/dev/null; then
      "${as_owner[@]}" grep -qzxF -- "HOLDFAST_STATE=$2" "$environ" 2>/dev/null
      return
    fi
    sleep 0.01
  done
  return 1
}
zombie() { grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# end PIDFILE STATE SIGNAL SECONDS: signal, wait, then kill -9
end() {
  local i
  alive "$1" "$2" || return 0
  kill "-$3" "$(pid_of "$1")" 2>/dev/null || true
  for ((i = 0; i < 20 * $4; i++)); do alive "$1" "$2" || return 0; sleep 0.05; done
  kill -9 "$(pid_of "$1")" 2>/dev/null || true
}

# RUN, made absolute: the folder of all state of one private instance.
enter_run() {
  [ -n "${RUN:-}" ] || die "set RUN to a folder for the state, for example RUN=\$(mktemp -d)"
  mkdir -p "$RUN"
  RUN=$(cd "$RUN" && pwd -P)
}

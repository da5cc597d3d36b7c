# shellcheck shell=bash
# Functions for the scripts in this folder, which source this file.

prog=${0##*/}
note() { printf '%s: %s\n' "$prog" "$*" >&2; }
die() { note "$@"; exit 1; }

# The comment at the top of a script is its help text.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }
usage_error() { usage >&2; exit 2; }

is_root() { [ "$(id -u)" = 0 ]; }

# --- Where the servers are installed -----------------------------------------------------------------------------

# Prints the folder of the newest PostgreSQL that has both the server and its tools. Debian does not put them in PATH.
# PG_BIN overrides the search.
postgres_bin() {
  local d
  for d in ${PG_BIN:+"$PG_BIN"} $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) /usr/local/pgsql/bin; do
    if [ -x "$d/initdb" ] && [ -x "$d/postgres" ] && [ -x "$d/pg_ctl" ]; then echo "$d"; return; fi
  done
  if d=$(command -v initdb) && [ -x "$(dirname "$d")/pg_ctl" ]; then dirname "$d"; else return 1; fi
}

# Prints the folder of RabbitMQ's own scripts. Debian's wrappers in /usr/sbin are of no use, because they require the
# user rabbitmq. RABBITMQ_BIN overrides the search.
rabbitmq_bin() {
  local d
  for d in ${RABBITMQ_BIN:+"$RABBITMQ_BIN"} /usr/lib/rabbitmq/bin /opt/rabbitmq/sbin; do
    if [ -x "$d/rabbitmq-server" ] && [ -x "$d/rabbitmqctl" ] && command -v epmd >/dev/null; then echo "$d"; return; fi
  done
  return 1
}

# --- Installing --------------------------------------------------------------------------------------------------

# install_packages INSTEAD PACKAGE...: installs packages as root on Debian or Ubuntu, without starting their services.
# If that is not possible, the message advises INSTEAD. The log is $RUN/apt.log.
install_packages() (
  instead=$1
  shift
  if ! command -v apt-get >/dev/null; then die "not installed: $*; $instead"; fi
  is_root || die "not installed: run apt-get install $* as root, or $instead"
  exec 7>/run/holdfast-install.lock
  flock 7 # another clone may be installing, too
  note "installing $* with apt-get"

  policy=/usr/sbin/policy-rc.d cluster=/etc/postgresql-common/createcluster.conf saved=.before-holdfast
  # shellcheck disable=SC2317 # the trap calls it
  restore() {
    if [ -e "$policy$saved" ]; then mv -f "$policy$saved" "$policy"; elif [ -e "$policy" ] && grep -q holdfast "$policy"; then rm "$policy"; fi
    if [ -e "$cluster$saved" ]; then mv -f "$cluster$saved" "$cluster"; fi
  }
  trap restore EXIT
  trap : INT TERM HUP # apt-get must end before the files are restored

  # Debian starts a service right after its installation, unless policy-rc.d exits with 101.
  if ! { [ -x "$policy" ] && "$policy" rabbitmq-server start >/dev/null 2>&1; [ $? = 101 ]; }; then
    if [ -e "$policy" ]; then mv "$policy" "$policy$saved"; fi
    printf '#!/bin/sh\n# temporary, from holdfast: start no services\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$RUN/apt.log" 2>&1 7>&-; }
  failed() { tail -n 5 "$RUN/apt.log" >&2; die "apt-get failed, see $RUN/apt.log; or $instead"; }

  : >"$RUN/apt.log"
  apt update || true # the packages may be available although one source fails
  if [[ " $* " == *" postgresql "* ]]; then # its first installation would create a database cluster that starts at boot
    apt install --no-install-recommends postgresql-common || failed "$@"
    cp -p "$cluster" "$cluster$saved"
    echo 'create_main_cluster = false' >>"$cluster"
  fi
  apt install --no-install-recommends "$@" || failed "$@"
  if command -v systemctl >/dev/null; then # do not start the services at the next boot
    if [[ " $* " == *" rabbitmq-server "* ]]; then systemctl disable rabbitmq-server.service epmd.socket epmd.service; fi
    if [[ " $* " == *" redis-server "* ]]; then systemctl disable redis-server.service; fi
  fi >>"$RUN/apt.log" 2>&1 || true
)

# --- Ports -------------------------------------------------------------------------------------------------------

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; } # listens IP PORT
port_taken() { listens 127.0.0.1 "$1"; }

# free_block BASE COUNT: prints the first port BASE + n*200 whose block of COUNT ports is free. All ports are below
# 32768, because Linux uses higher ports for outgoing connections. Blocks with the bases 25432 and 25672 never overlap.
free_block() {
  local base=$1 i
  while ((base + 100 < 32768)); do
    for ((i = 0; i < $2; i++)); do
      if port_taken $((base + i)); then base=$((base + 200)); continue 2; fi
    done
    echo "$base"
    return
  done
  die "no free port from $1 on; set PG_PORT or RABBIT_PORT"
}

# --- Processes ---------------------------------------------------------------------------------------------------
# Every process is started with HOLDFAST_STATE=<its state folder> in its environment. A PID file is valid only while its
# process has this mark. So the scripts never signal another process that got the same PID later.

pid_of() { head -n 1 "$1" 2>/dev/null; }

as_owner=() # command prefix to inspect a process of another user; in a container root needs it without CAP_SYS_PTRACE

alive() { # alive PIDFILE STATE: whether the process runs and has the mark
  local pid environ i
  pid=$(pid_of "$1") && [ -n "$pid" ] || return 1
  environ=/proc/$pid/environ
  for ((i = 0; i < 20; i++)); do
    if "${as_owner[@]}" grep -qzxF -- "HOLDFAST_STATE=$2" "$environ" 2>/dev/null; then return 0; fi
    if [ ! -e "$environ" ] || zombie "$pid"; then return 1; fi
    # The file is empty while the process replaces itself with another program, as RabbitMQ's start scripts do.
    if "${as_owner[@]}" grep -qz '' "$environ" 2>/dev/null; then
      "${as_owner[@]}" grep -qzxF -- "HOLDFAST_STATE=$2" "$environ" 2>/dev/null
      return
    fi
    sleep 0.01
  done
  return 1
}
zombie() { grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# end PIDFILE STATE SIGNAL SECONDS: sends the signal, waits for the end, and kills the process after SECONDS
end() {
  local i
  alive "$1" "$2" || return 0
  kill "-$3" "$(pid_of "$1")" 2>/dev/null || true
  for ((i = 0; i < 20 * $4; i++)); do alive "$1" "$2" || return 0; sleep 0.05; done
  kill -9 "$(pid_of "$1")" 2>/dev/null || true
}

# enter_run: creates RUN, the state folder of a private instance, and makes its path absolute
enter_run() {
  [ -n "${RUN:-}" ] || die "set RUN to a folder for the state, for example RUN=\$(mktemp -d)"
  mkdir -p "$RUN"
  RUN=$(cd "$RUN" && pwd -P)
}

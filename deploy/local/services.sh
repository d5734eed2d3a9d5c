#!/usr/bin/env bash
# Private PostgreSQL and RabbitMQ for the demo, the tests and `make up`.
#
#   services.sh up DIR                  start both; write DIR/env and print it
#   services.sh down DIR                stop both, remove their data; nothing is left
#   services.sh restart-postgres DIR [fast|immediate]
#   services.sh restart-rabbit DIR [term|kill]
#   services.sh stop-postgres DIR [fast|immediate]    start-postgres DIR
#   services.sh stop-rabbit DIR [term|kill]           start-rabbit DIR
#   services.sh install                 install what is missing with apt, where we may
#
# Everything listens on 127.0.0.1 on ports of its own, so any number of DIRs can be up at once.
# Only processes started here are ever ended: a pid counts as ours while its start time is the
# one that was written down. As root, PostgreSQL runs as user postgres (it refuses root).
# Linux only (/proc). PG_BIN and RABBITMQ_BIN name other binaries than the newest installed.
set -euo pipefail

readonly UP_TIMEOUT_SECONDS=120   # a cold RabbitMQ takes 8 s on an idle machine; a busy CI box ten times that
readonly STOP_TIMEOUT_SECONDS=60

# shellcheck source=deploy/local/processes.sh
. "$(dirname "${BASH_SOURCE[0]}")/processes.sh"

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '4,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# ---------------------------------------------------------------- what is installed

newest() { # the last existing file in version order
  local found
  found=$(for candidate in "$@"; do [[ -x $candidate ]] && printf '%s\n' "$candidate"; done | sort -V | tail -n 1)
  [[ -n $found ]] && printf '%s\n' "$found"
}

find_binaries() {
  local postgres rabbit
  postgres=$(newest /usr/lib/postgresql/*/bin/postgres) || postgres=
  [[ -n ${PG_BIN:-} ]] && postgres=$PG_BIN/postgres
  # The wrappers in /usr/sbin insist on user rabbitmq; the scripts below them run as anyone.
  rabbit=$(newest /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server) || rabbit=
  [[ -n ${RABBITMQ_BIN:-} ]] && rabbit=$RABBITMQ_BIN/rabbitmq-server
  EPMD=$(command -v epmd || newest /usr/lib/erlang/erts-*/bin/epmd) || EPMD=
  [[ -n $postgres ]] && PG=${postgres%/*} || PG=
  [[ -n $rabbit && -n $EPMD ]] && RABBIT=${rabbit%/*} || RABBIT=
}

missing_packages() {
  find_binaries
  [[ -n $PG ]] || printf ' postgresql'
  [[ -n $RABBIT ]] || printf ' rabbitmq-server'
}

require_binaries() {
  local missing
  missing=$(missing_packages)
  if [[ -n $missing ]]; then
    say "missing:$missing. Install with: sudo apt-get install -y$missing (or set DATABASE_URL and AMQP_URL)"
    exit 2
  fi
  find_binaries
}

install_missing() {
  local missing root=() deny=/usr/sbin/policy-rc.d denied=
  missing=$(missing_packages)
  [[ -n $missing ]] || return 0
  if ((EUID != 0)); then root=(sudo -n); fi
  if ! command -v apt-get >/dev/null || { ((EUID != 0)) && ! sudo -n true 2>/dev/null; }; then
    require_binaries
  fi
  say "installing$missing with apt-get"
  # The packages would start system-wide servers on the standard ports. We want the binaries only,
  # so starting is denied for the time of the installation, unless a policy is there already.
  if [[ ! -e $deny ]]; then
    denied=yes
    # shellcheck disable=SC2064 # the path and the prefix are wanted as they are now
    trap "${root[*]} rm -f $deny" EXIT
    printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$deny" >/dev/null
    "${root[@]}" chmod 755 "$deny"
  fi
  "${root[@]}" apt-get update -qq >&2
  # shellcheck disable=SC2086 # a list of package names
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
  if [[ -n $denied ]]; then "${root[@]}" rm -f "$deny"; trap - EXIT; fi
  require_binaries
}

# ---------------------------------------------------------------- where things live

as_postgres() {
  if ((EUID == 0)); then
    setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=/ "$@"
  else
    "$@"
  fi
}

# The data stays in DIR where it can: RabbitMQ's scripts do not quote their paths, and user
# postgres must be able to walk there, which it cannot below /root.
choose_home() {
  local home=$DIR/data
  mkdir -p "$home"
  if [[ ! $home =~ ^[A-Za-z0-9/._-]+$ ]] || ! as_postgres test -x "$home"; then
    rmdir "$home"
    home=$(mktemp -d /tmp/oncebox-services.XXXXXX)
    chmod 711 "$home"
  fi
  printf '%s\n' "$home" >"$STATE/home"
}

prepare() {
  local name port
  if [[ ! -f $STATE/ports ]]; then
    mkdir -p "$STATE"
    choose_home
    : >"$STATE/ports.new"
    for name in PG_PORT AMQP_PORT MANAGEMENT_PORT DIST_PORT EPMD_PORT; do
      port=$(claim_port)
      printf '%s=%s\n' "$name" "$port" >>"$STATE/ports.new"
    done
    mv "$STATE/ports.new" "$STATE/ports"
  fi
  load
}

load() {
  [[ -f $STATE/ports ]] || die "nothing is up under $DIR"
  # shellcheck source=/dev/null
  . "$STATE/ports"
  HOME_DIR=$(cat "$STATE/home")
  PG_DATA=$HOME_DIR/pg/data
  RABBIT_HOME=$HOME_DIR/rabbit
}

write_env() {
  cat >"$DIR/env.new" <<END
DATABASE_URL=postgres://postgres@127.0.0.1:$PG_PORT/oncebox
AMQP_URL=amqp://guest:guest@127.0.0.1:$AMQP_PORT/%2f
RABBITMQ_API=http://guest:guest@127.0.0.1:$MANAGEMENT_PORT/api
POSTGRES_PORT=$PG_PORT
POSTGRES_PID=$(our_pid postgres || true)
RABBITMQ_PORT=$AMQP_PORT
RABBITMQ_PID=$(our_pid rabbit || true)
END
  mv "$DIR/env.new" "$DIR/env"
}

show_log() { # what a person needs when a server did not start
  say "last lines of $1:"
  tail -n 25 "$1" >&2 2>/dev/null || say "(no such file)"
}

# ---------------------------------------------------------------- PostgreSQL

initialise_postgres() {
  local log=$HOME_DIR/pg/initdb.log
  mkdir -p "$HOME_DIR/pg"
  if ((EUID == 0)); then chown postgres:postgres "$HOME_DIR/pg"; fi
  cd "$HOME_DIR/pg"
  as_postgres rm -rf "$PG_DATA.new"
  if ! as_postgres "$PG/initdb" -D "$PG_DATA.new" -U postgres --auth=trust --locale=C.UTF-8 -E UTF8 >"$log" 2>&1; then
    say "initdb failed"
    show_log "$log"
    return 1
  fi
  # No socket file: its path may be at most 107 bytes, and every client here uses TCP.
  as_postgres tee -a "$PG_DATA.new/postgresql.conf" >/dev/null <<END
listen_addresses = '127.0.0.1'
port = $PG_PORT
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 10
shared_buffers = 256MB
fsync = on
synchronous_commit = on
END
  as_postgres mv "$PG_DATA.new" "$PG_DATA"
}

start_postgres() {
  local log=$HOME_DIR/pg/server.log deadline=$((SECONDS + UP_TIMEOUT_SECONDS))
  our_pid postgres >/dev/null && return 0
  [[ -d $PG_DATA ]] || initialise_postgres || return 1
  cd "$HOME_DIR/pg"
  # After a SIGKILL the old backends hold the data directory for a moment longer, and the new
  # server refuses to start beside them.
  until as_postgres "$PG/pg_ctl" -D "$PG_DATA" -l "$log" -w -t "$UP_TIMEOUT_SECONDS" start \
    >"$HOME_DIR/pg/pg_ctl.log" 2>&1 </dev/null; do
    if ((SECONDS >= deadline)) || ! tail -n 5 "$log" 2>/dev/null | grep -qE 'lock file|shared memory block'; then
      say "PostgreSQL did not start"
      show_log "$log"
      return 1
    fi
    sleep 0.3
  done
  remember postgres "$(as_postgres head -n 1 "$PG_DATA/postmaster.pid")"
  create_database || { show_log "$log"; return 1; }
}

create_database() {
  local ask=("$PG/psql" -h 127.0.0.1 -p "$PG_PORT" -U postgres -d postgres -XqAt -v ON_ERROR_STOP=1)
  [[ $("${ask[@]}" -c "select 1 from pg_database where datname = 'oncebox'") == 1 ]] ||
    "${ask[@]}" -c 'create database oncebox'
}

# The server's own pid file, for an `up` that was cut off before it could write down the pid.
adopt_postgres() {
  local pid
  [[ -f $PG_DATA/postmaster.pid ]] || return 0
  pid=$(head -n 1 "$PG_DATA/postmaster.pid")
  if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$PG_DATA"; then remember postgres "$pid"; fi
}

stop_postgres() { # fast: clients are cut, a checkpoint is written; immediate: as if the machine had died
  local mode=${1:-fast} pid child
  pid=$(our_pid postgres) || return 0
  case $mode in fast) signal INT "$pid" ;; immediate) signal QUIT "$pid" ;; *) usage ;; esac
  if ! wait_gone postgres "$STOP_TIMEOUT_SECONDS"; then
    say "PostgreSQL did not stop ($mode): killing it"
    for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) "$pid"; do signal KILL "$child"; done
    wait_gone postgres 10
  fi
  rm -f "$STATE/postgres.pid"
}

# ---------------------------------------------------------------- RabbitMQ

rabbit_environment() {
  local node=$RABBIT_HOME
  export HOME=$node ERL_EPMD_PORT=$EPMD_PORT ERL_EPMD_ADDRESS=127.0.0.1
  export RABBITMQ_NODENAME=oncebox@localhost RABBITMQ_DIST_PORT=$DIST_PORT
  export RABBITMQ_MNESIA_BASE=$node/mnesia RABBITMQ_LOG_BASE=$node/log RABBITMQ_PID_FILE=$node/pid
  export RABBITMQ_GENERATED_CONFIG_DIR=$node/generated RABBITMQ_CONF_ENV_FILE=$node/env.conf
  export RABBITMQ_CONFIG_FILE=$node/rabbitmq.conf RABBITMQ_ADVANCED_CONFIG_FILE=$node/advanced.config
  export RABBITMQ_ENABLED_PLUGINS_FILE=$node/enabled_plugins RABBITMQ_FEATURE_FLAGS_FILE=$node/feature_flags
  export RABBITMQ_PLUGINS_EXPAND_DIR=$node/plugins
  export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
  # The server script then becomes the Erlang VM instead of waiting beside it: one pid, known at once.
  export RUNNING_UNDER_SYSTEMD=true
  unset RABBITMQ_NODE_PORT RABBITMQ_NODE_IP_ADDRESS NOTIFY_SOCKET ERL_LIBS
}

initialise_rabbit() {
  mkdir -p "$RABBIT_HOME"/{mnesia,log}
  : >"$RABBIT_HOME/env.conf"
  printf '[].\n' >"$RABBIT_HOME/advanced.config"
  printf '[rabbitmq_management].\n' >"$RABBIT_HOME/enabled_plugins"
  cat >"$RABBIT_HOME/rabbitmq.conf" <<END
listeners.tcp.1 = 127.0.0.1:$AMQP_PORT
management.tcp.ip = 127.0.0.1
management.tcp.port = $MANAGEMENT_PORT
loopback_users = none
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
END
}

# An epmd of our own, in the foreground: the VM would otherwise start a daemon that outlives it.
start_epmd() {
  our_pid epmd >/dev/null && return 0
  setsid "$EPMD" -port "$EPMD_PORT" -address 127.0.0.1 >"$RABBIT_HOME/epmd.log" 2>&1 </dev/null 9>&- &
  remember epmd $!
  disown $!   # else bash reports its end, which `down` brings about by SIGKILL
  for _ in $(seq 100); do
    port_open "$EPMD_PORT" && return 0
    our_pid epmd >/dev/null || break
    sleep 0.05
  done
  say "epmd did not start"
  show_log "$RABBIT_HOME/epmd.log"
  return 1
}

# rabbitmqctl would start another VM (over a second each); the management API says the same in milliseconds.
rabbit_ready() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$MANAGEMENT_PORT" || exit 1
    printf 'GET /api/health/checks/port-listener/%s HTTP/1.0\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n' "$AMQP_PORT" >&3
    read -r -t 5 _ status _ <&3 && [[ $status == 200 ]]
  ) 2>/dev/null
}

start_rabbit() {
  local log=$RABBIT_HOME/out.log deadline=$((SECONDS + UP_TIMEOUT_SECONDS))
  if ! our_pid rabbit >/dev/null; then
    initialise_rabbit
    start_epmd || return 1
    cd "$RABBIT_HOME"
    (
      rabbit_environment
      exec setsid "$RABBIT/rabbitmq-server" >"$log" 2>&1 </dev/null 9>&-
    ) &
    remember rabbit $!
    disown $!
  fi
  until rabbit_ready; do
    if ((SECONDS >= deadline)) || ! our_pid rabbit >/dev/null; then
      say "RabbitMQ did not start"
      show_log "$log"
      return 1
    fi
    sleep 0.1
  done
}

stop_rabbit() { # term: an orderly shutdown (some 7 s); kill: as if the machine had died
  local mode=${1:-term} pid
  pid=$(our_pid rabbit) || return 0
  case $mode in term) signal TERM "$pid" ;; kill) signal KILL "$pid" ;; *) usage ;; esac
  if ! wait_gone rabbit "$STOP_TIMEOUT_SECONDS"; then
    say "RabbitMQ did not stop ($mode): killing it"
    signal KILL "$pid"
    wait_gone rabbit 10
  fi
  kill_group "$pid"
  rm -f "$STATE/rabbit.pid"
}

stop_epmd() {
  local pid
  pid=$(our_pid epmd) || return 0
  signal KILL "$pid"
  wait_gone epmd 10
}

# ---------------------------------------------------------------- the verbs

INTERRUPTED=

join() { # waits for a background job also when a signal comes in between
  local code
  until wait "$1"; do
    code=$?
    if [[ -z $INTERRUPTED ]] || ! kill -0 "$1" 2>/dev/null; then return "$code"; fi
  done
}

# A signal does not stop the two starts half way, where a server may run whose pid nobody has
# written down: both are let through, then stopped.
up() {
  local postgres rabbit failed=
  require_binaries
  trap 'INTERRUPTED=yes' INT TERM
  prepare
  (trap : INT TERM; start_postgres 9>&-) & postgres=$!
  (trap : INT TERM; start_rabbit) & rabbit=$!
  join "$postgres" || failed=yes
  join "$rabbit" || failed=yes
  if [[ -n $failed$INTERRUPTED ]]; then
    down
    [[ -z $INTERRUPTED ]] || exit 130
    exit 1
  fi
  trap - INT TERM
  write_env
  cat "$DIR/env"
}

down() { # the data goes too, so neither server needs to stop tidily
  [[ -d $STATE ]] || return 0
  if [[ -f $STATE/ports ]]; then
    load
    stop_rabbit kill
    stop_epmd
    adopt_postgres
    stop_postgres immediate
    cd /
    # Backends of a server that somebody killed may still be on their way out of their files.
    for _ in $(seq 50); do rm -rf "$HOME_DIR" 2>/dev/null && break; sleep 0.1; done
    [[ ! -e $HOME_DIR ]] || die "cannot remove $HOME_DIR"
  fi
  release_ports
  rm -rf "$STATE" "$DIR/env" "$DIR/lock"
  rmdir "$DIR" 2>/dev/null || true
}

control() { # VERB...: one change to servers that are up
  require_binaries
  load
  "$@" || exit 1
  write_env
}
restart_postgres() { stop_postgres "${1:-fast}"; start_postgres 9>&-; }
restart_rabbit() { stop_rabbit "${1:-term}"; start_rabbit; }

main() {
  local verb=${1:-}
  case $verb in
    install) install_missing; return ;;
    up | down | restart-postgres | restart-rabbit | stop-postgres | start-postgres | stop-rabbit | start-rabbit) ;;
    *) usage ;;
  esac
  [[ -n ${2:-} ]] || usage
  if [[ $verb == down && ! -d $2 ]]; then return 0; fi
  mkdir -p "$2"
  DIR=$(cd "$2" && pwd -P)
  STATE=$DIR/state
  exec 9>"$DIR/lock"   # two verbs on one DIR take turns
  flock 9
  case $verb in
    up) up ;;
    down) down ;;
    restart-postgres) control restart_postgres "${3:-fast}" ;;
    restart-rabbit) control restart_rabbit "${3:-term}" ;;
    stop-postgres) control stop_postgres "${3:-fast}" ;;
    start-postgres) control start_postgres 9>&- ;;
    stop-rabbit) control stop_rabbit "${3:-term}" ;;
    start-rabbit) control start_rabbit ;;
  esac
}

main "$@"

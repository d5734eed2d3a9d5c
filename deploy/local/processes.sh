# shellcheck shell=bash
# Read by services.sh: which processes are ours, how they end, which ports are taken.
# STATE is the directory of what was written down about one set of servers.
# shellcheck disable=SC2153 # STATE is set by the script that reads this one

readonly PORT_REGISTRY=/tmp/oncebox-ports-$EUID

# ---------------------------------------------------------------- processes that are ours

# No other program is asked: a signal to our whole process group would end it half way, and a
# server whose start time is not known can never be stopped.
started_at() {
  local stat
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  read -ra stat <<<"${stat##*) }"   # the name before it may hold spaces
  [[ ${stat[0]} != Z ]] || return 1 # a zombie has ended
  printf '%s\n' "${stat[19]}"       # starttime, field 22 of proc(5)
}

remember() { printf '%s %s\n' "$2" "$(started_at "$2" || true)" >"$STATE/$1.pid"; }

our_pid() { # prints the pid when the process that we started is still there
  local pid start
  [[ -f $STATE/$1.pid ]] || return 1
  read -r pid start <"$STATE/$1.pid"
  [[ -n $start && $(started_at "$pid") == "$start" ]] && printf '%s\n' "$pid"
}

signal() { kill "-$1" "$2" 2>/dev/null || true; }   # it may have ended by itself since we looked

wait_gone() { # NAME SECONDS
  local deadline=$((SECONDS + $2))
  while our_pid "$1" >/dev/null; do
    ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
}

group_members() { # living processes of a process group
  local stat rest
  for stat in /proc/[0-9]*/stat; do
    rest=$(cat "$stat" 2>/dev/null) || continue
    rest=${rest##*) }
    read -r state _ group _ <<<"$rest"
    if [[ $group == "$1" && $state != Z ]]; then
      stat=${stat#/proc/}
      printf '%s\n' "${stat%/stat}"
    fi
  done
}

kill_group() { # what is left of a group that we created; it cannot be anyone else's while it has members
  local group=$1 deadline=$((SECONDS + 5))
  while [[ -n $(group_members "$group") ]]; do
    if ((SECONDS >= deadline)); then kill -KILL -- "-$group" 2>/dev/null || true; fi
    ((SECONDS < deadline + 5)) || die "process group $group cannot be ended"
    sleep 0.05
  done
}

# ---------------------------------------------------------------- ports

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A claimed port is a symbolic link to the DIR that has it: made atomically, so two `up` at the
# same time cannot choose the same one, and recognisably stale when that DIR is gone.
claim_port() {
  local port
  for _ in $(seq 200); do
    mkdir -p "$PORT_REGISTRY"   # another DIR's `down` may just have removed it
    port=$((20000 + RANDOM % 12000))   # below Linux's ephemeral range, which starts at 32768
    if [[ -L $PORT_REGISTRY/$port && ! -e $PORT_REGISTRY/$port ]]; then rm -f "$PORT_REGISTRY/$port"; fi
    port_open "$port" && continue
    if ln -s "$STATE" "$PORT_REGISTRY/$port" 2>/dev/null; then
      printf '%s\n' "$port"
      return 0
    fi
  done
  die "no free port between 20000 and 32000"
}

release_ports() {
  local link
  for link in "$PORT_REGISTRY"/*; do
    if [[ -L $link && $(readlink "$link") == "$STATE" ]]; then rm -f "$link"; fi
  done
  rmdir "$PORT_REGISTRY" 2>/dev/null || true
}

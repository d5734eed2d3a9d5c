#!/usr/bin/env bash
# with-services.sh CMD...: runs CMD with PostgreSQL and RabbitMQ, then takes away what it brought up.
#
# In this order: DATABASE_URL and AMQP_URL as given; a Docker engine that answers (docker-compose.yml);
# private instances of the machine's own packages. CMD sees
#   DATABASE_URL, AMQP_URL
#   RABBITMQ_API               the management API, with its credentials, when known
#   SERVICES_CONTROL   private | docker | none: how far the servers may be stopped and killed
#   SERVICES_DIR       the DIR for services.sh, only when the instances are private
# and its exit code is the exit code. SERVICES_FROM=private skips the Docker engine.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
readonly here root=${here%/deploy/local}
dir=
project=

say() { printf 'services: %s\n' "$*" >&2; }

tear_down() {
  local code=$?
  trap '' INT TERM   # an impatient second Ctrl-C must not leave servers behind
  trap - EXIT
  if [[ -n $project ]]; then compose down --volumes --timeout 2 >/dev/null 2>&1 || say "docker project $project is still there"; fi
  if [[ -n $dir ]]; then
    "$here/services.sh" down "$dir/services" || code=1
    rm -rf "$dir"
  fi
  exit "$code"
}

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose -p "$project" -f "$root/docker-compose.yml" "$@"
  else
    docker-compose -p "$project" -f "$root/docker-compose.yml" "$@"
  fi
}

docker_answers() {
  [[ ${SERVICES_FROM:-} != private ]] && command -v docker >/dev/null && timeout 3 docker info >/dev/null 2>&1 &&
    { docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; }
}

published() { # SERVICE PORT: where the engine put it
  compose port "$1" "$2" | tail -n 1
}

healthy() { # SERVICE
  [[ $(docker inspect -f '{{.State.Health.Status}}' "$(compose ps -q "$1")" 2>/dev/null) == healthy ]]
}

docker_up() {
  local deadline=$((SECONDS + 300))   # the images may have to be fetched first
  project=oncebox-$$
  # Empty: any free port, so that this run disturbs nobody's `make up`.
  export POSTGRES_PUBLISH='' AMQP_PUBLISH='' MANAGEMENT_PUBLISH=''
  compose up -d postgres rabbitmq >&2 || return 1
  until healthy postgres && healthy rabbitmq; do
    ((SECONDS < deadline)) || return 1
    sleep 0.5
  done
  DATABASE_URL=postgres://postgres:oncebox@$(published postgres 5432)/oncebox
  AMQP_URL=amqp://oncebox:oncebox@$(published rabbitmq 5672)/%2f
  RABBITMQ_API=http://oncebox:oncebox@$(published rabbitmq 15672)/api
  export DATABASE_URL AMQP_URL RABBITMQ_API SERVICES_CONTROL=docker
}

private_up() {
  "$here/services.sh" install || exit
  dir=$(mktemp -d "${TMPDIR:-/tmp}/oncebox.XXXXXX")
  chmod 711 "$dir"   # user postgres has to walk through it
  "$here/services.sh" up "$dir/services" >/dev/null || exit
  set -a
  # shellcheck source=/dev/null
  . "$dir/services/env"
  set +a
  # Pids change with every restart; who needs one reads it from the file.
  unset POSTGRES_PID RABBITMQ_PID POSTGRES_PORT RABBITMQ_PORT
  export SERVICES_CONTROL=private SERVICES_DIR=$dir/services
}

[[ $# -gt 0 ]] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
trap tear_down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unset SERVICES_DIR
if [[ -n ${DATABASE_URL:-} && -n ${AMQP_URL:-} ]]; then
  say "using DATABASE_URL and AMQP_URL as given; tests that stop servers are left out"
  export SERVICES_CONTROL=none
elif [[ -n ${DATABASE_URL:-}${AMQP_URL:-} ]]; then
  say "only one of DATABASE_URL and AMQP_URL is set: set both, or neither"
  exit 2
elif docker_answers && docker_up; then
  say "using the Docker engine, project $project"
else
  if [[ -n $project ]]; then
    say "the Docker engine could not start them; using private instances"
    compose down --volumes >/dev/null 2>&1 || true
    project=
  fi
  private_up
  say "using private instances on free ports"
fi
"$@"

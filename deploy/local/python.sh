#!/usr/bin/env bash
# Prints the path of a Python interpreter that can import psycopg (version 3): one that can already,
# else Debian's package where we may install it, else a virtual environment under target/.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
venv=${CARGO_TARGET_DIR:-$root/target}/python

usable() { [[ -n $1 ]] && "$1" -c 'import psycopg' >/dev/null 2>&1; }

for python in "$(command -v python3 || true)" /usr/bin/python3 "$venv/bin/python"; do
  if usable "$python"; then printf '%s\n' "$python"; exit 0; fi
done

# Debian's module is for Debian's interpreter; another python3 in front of it does not see it.
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-psycopg; } >&2 &&
    usable /usr/bin/python3; then
    printf '/usr/bin/python3\n'
    exit 0
  fi
fi

if python3 -m venv "$venv" >&2 && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'psycopg[binary]>=3.1,<4' >&2 &&
  usable "$venv/bin/python"; then
  printf '%s\n' "$venv/bin/python"
  exit 0
fi
echo "python: no psycopg 3. Install with: sudo apt-get install -y python3-psycopg (or python3-venv, and run this again)" >&2
exit 2

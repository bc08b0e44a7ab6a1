#!/usr/bin/env bash
# Runs the linters beside a command, in the processor time that it leaves: most tests wait most of their time.
# Usage: tools/beside.sh COMMAND...    Ends as the command does, or with 1 where a linter has found something.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
said=$(mktemp)
nice -n 19 "${MAKE:-make}" --no-print-directory lint >"$said" 2>&1 &
linters=$!
trap 'kill "$linters" 2>/dev/null; rm -f "$said"' EXIT

"$@"
code=$?
wait "$linters" && exit "$code"
cat "$said"
echo "make lint has failed: see above" >&2
exit $((code ? code : 1))

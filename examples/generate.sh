#!/bin/sh
# Has a program written for a data set, run, judged and repaired, and shows the result and the turns.
#
#   examples/generate.sh data/breast_cancer "Predict the target."
#
# Needs a running daemon; FUMEHOOD_URL says where, if not on http://127.0.0.1:8000.
set -eu
url=${FUMEHOOD_URL:-http://127.0.0.1:8000}
body=$(python3 -c 'import json, sys; print(json.dumps({"dataset_path": sys.argv[1], "user_instruction": sys.argv[2]}))' "$1" "$2")
run=$(curl -fsS "$url/runs" -H 'Content-Type: application/json' -H 'Prefer: wait=300' -d "$body")
printf '%s\n' "$run" | python3 -c 'import json, sys; run = json.load(sys.stdin); run.pop("result"); print(json.dumps(run, indent=2))'
id=$(printf '%s\n' "$run" | python3 -c 'import json, sys; print(json.load(sys.stdin)["run_id"])')
curl -fsS "$url/runs/$id/episodes"
echo

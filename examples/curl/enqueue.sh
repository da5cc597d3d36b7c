#!/bin/sh
# Stores a task with curl, and finds it. API_URL is the address of the API, and API_TOKEN the secret of a token; without
# tokens, on this machine, API_TOKEN may be empty. A repetition with the same Idempotency-Key stores nothing again.
set -eu
url=${API_URL:-http://127.0.0.1:8480}
call() {
  curl --silent --show-error --fail-with-body ${API_TOKEN:+--header "Authorization: Bearer $API_TOKEN"} \
    --header 'Content-Type: application/json' "$@"
}

key="order-7-$$"
for attempt in 1 2; do
  call --header "Idempotency-Key: $key" --data '{"type": "mail", "payload": {"order": 7}, "delay": "1h"}' "$url/api/v1/tasks"
done
call --get --data-urlencode 'q=state:ready type:mail' --data 'limit=10' "$url/api/v1/tasks"

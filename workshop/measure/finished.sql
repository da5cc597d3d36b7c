-- Inserts $1 tasks that succeeded in the last six days. The default retention keeps all of them during a measurement.
insert into tasks (created_at, next_run_at, started_at, finished_at, max_attempts, type, queue, payload, state)
select at, at, at, at, 20, 'http', 'default', '{"url":"http://127.0.0.1:8080/orders/0123456789"}', 'done'
from (select now() - interval '6 days' * (1 - n / $1::float8) as at from generate_series(1, $1::bigint) n) times

package sqlite_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/storetest"
)

var manyTasks = flag.Int("tasks", 57_000, "number of tasks for BenchmarkLists")

// BenchmarkLists measures the lists that people use:
//
//	go test -run '^$' -bench Lists -benchtime 40x ./store/sqlite -tasks 1000000
func BenchmarkLists(b *testing.B) {
	s := open(b)
	many := storetest.ManyTasks{Total: *manyTasks}
	text := strings.NewReplacer("{total}", fmt.Sprint(many.Total), "{finished}", fmt.Sprint(many.Finished())).Replace(`
		insert into tasks (id, created_at, next_run_at, max_attempts, type, queue, unique_key, payload, state, worker_id, finished_at,
		  ticketed_at, dead_at, last_error, tags)
		with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {total}),
		states as (
		  select n, unixepoch() * 1000000 - ({total} - n) * 1000 as at, case
		    when n > {finished} + 100 then 'ready' when n > {finished} then 'running' when n % 26 = 0 then 'dead' else 'done' end as state
		  from numbers
		)
		select n, at, at, 3, iif(n = 26, 'rare', 'type' || (n / 26 % 300 % 20)), 'default', iif(n % 10 = 0, 'key' || n, null),
		  '{"order": {"id": ' || n || '}, "url": "https://example.com/hook", "user": "ada"}',
		  state, iif(state = 'running', 1, null), iif(state in ('done', 'dead'), at, null),
		  iif(state = 'ready', at, null), iif(state = 'dead', at, null),
		  iif(state = 'dead', 'host answers ' || (500 + n / 26 % 300 % 5) || ' to order ' || n, null),
		  iif(n % 5 = 0, json_array('all', 'tenant:' || (n / 5 % 200), 'order:' || n), null)
		from states;
		insert into tags (tag, task_id) select g.value, tasks.id from tasks, json_each(tasks.tags) as g order by 1, 2;
		insert into deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
		select id, dead_at, type, queue, printf('%016x', id / 26 % 300), 'http_' || (500 + id / 26 % 300 % 5),
		  'host' || (id / 26 % 300 % 100) || '.example.com', 500 + id / 26 % 300 % 5
		from tasks where dead_at is not null;`)
	change(b, s, text)
	many.BenchmarkLists(b, s)
}

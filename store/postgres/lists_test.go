package postgres_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

var manyTasks = flag.Int("tasks", 57_000, "number of tasks for BenchmarkLists; 5,700,000 need 6 GB of disk space")

// BenchmarkLists measures the lists that people use:
//
//	go test -run '^$' -bench Lists -benchtime 40x -timeout 1h ./store/postgres -tasks 5700000
func BenchmarkLists(b *testing.B) {
	s := pgtest.Open(b)
	many := storetest.ManyTasks{Total: *manyTasks}
	insertMany(b, s.Schema(), many)
	many.BenchmarkLists(b, s)
}

// insertMany stores many tasks, as autovacuum would leave them.
func insertMany(b *testing.B, schema string, many storetest.ManyTasks) {
	b.Helper()
	text := strings.NewReplacer("{total}", fmt.Sprint(many.Total), "{finished}", fmt.Sprint(many.Finished())).Replace(`
		insert into tasks (id, created_at, next_run_at, max_attempts, type, queue, unique_key, payload, state, worker_id, finished_at,
		  ticketed_at, dead_at, last_error, tags)
		select n, at, at, 3, case when n = 26 then 'rare' else 'type' || n / 26 % 300 % 20 end, 'default', case when n % 10 = 0 then 'key' || n end,
		  json_build_object('order', json_build_object('id', n), 'url', 'https://example.com/hook', 'user', 'ada'),
		  state, case when state = 'running' then 1 end, case when state in ('done', 'dead') then at end,
		  case when state = 'ready' then at end, case when state = 'dead' then at end,
		  case when state = 'dead' then 'host answers ' || 500 + n / 26 % 300 % 5 || ' to order ' || n end,
		  case when n % 5 = 0 then json_build_array('all', 'tenant:' || n / 5 % 200, 'order:' || n) end
		from (
		  select n, now() - ({total} - n) * interval '1 millisecond' as at, case
		    when n > {finished} + 100 then 'ready' when n > {finished} then 'running' when n % 26 = 0 then 'dead' else 'done' end as state
		  from generate_series(1, {total}) as n
		) g;
		insert into tags (tag, task_id) select tag, id from tasks, json_array_elements_text(tags) as w (tag) where tags is not null order by 1, 2;
		insert into deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
		select id, dead_at, type, queue, lpad(to_hex(id / 26 % 300), 16, '0'), 'http_' || 500 + id / 26 % 300 % 5,
		  'host' || id / 26 % 300 % 100 || '.example.com', 500 + id / 26 % 300 % 5
		from tasks where dead_at is not null order by id;
		insert into workers (id, name, host, pid, version, concurrency, queues, lease_until, tasks)
		values (1, 'worker', 'host', 1, '', 100, '{}', now() + interval '1 hour', array(select id from tasks where state = 'running'));
		insert into counts (queue, type, state, block, n)
		select queue, type, 'all', id / 100000, count(*) from tasks group by 1, 2, 4
		union all
		select queue, type, state, id / 100000, count(*) from tasks where state in ('done', 'dead') group by 1, 2, 3, 4;`)
	conn, err := pgtest.Admin(b).Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"set search_path = " + schema, text, "vacuum (analyze) tasks", "vacuum (analyze) tags", "vacuum (analyze) deaths"} {
		if _, err := conn.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

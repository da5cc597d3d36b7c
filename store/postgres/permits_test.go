package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// The cost of giving permits depends on the work to do, and not on the number of waiting keys or on statistics. Each
// key has a running task and a waiting one.
func TestALookAtPermitsReadsFewPages(t *testing.T) {
	t.Parallel()
	const keys, few = 3000, 100
	for _, planned := range []string{"never analyzed", "analyzed"} {
		s := pgtest.Open(t) // other tests may have analyzed the tables of a reused schema
		set, err := s.SetLimit(t.Context(), anna, store.Limit{Scope: store.Scope{Per: store.PerKey}, Concurrency: 1}.Change())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := s.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		run := runOn(t, conn)
		run("set plan_cache_mode = force_generic_plan")
		run("set search_path = " + s.Schema())
		run(fmt.Sprintf(`insert into tasks (id, type, queue, payload, max_attempts, state, key, due_at)
			select n, 't', 'default', '1', 3, case when n <= %[1]d then 'running' else 'ready' end, 'k' || n %% %[1]d, case when n > %[1]d then timestamptz '9999-01-01 00:00:00+00' end
			from generate_series(1, 2 * %[1]d) n`, keys))
		run(fmt.Sprintf("insert into permits (task_id, gate_id, attempt, bucket) select n, %d, 1, 'k' || n %% %d from generate_series(1, %[2]d) n", set.After.ID, keys))
		run(fmt.Sprintf("insert into blocked (task_id, attempt, gate_id, bucket) select n, 1, %d, 'k' || n %% %d from generate_series(%[2]d + 1, 2 * %[2]d) n", set.After.ID, keys))
		run(fmt.Sprintf("insert into buckets (gate_id, bucket, next_at) select %d, 'k' || n, timestamptz '9999-01-01 00:00:00+00' from generate_series(0, %d - 1) n", set.After.ID, keys))
		if planned == "analyzed" {
			run("analyze tasks, permits, blocked, buckets, gates")
		}
		bucket := fmt.Sprintf(`[{"gate_id":%d,"bucket":"k1","n":1,"next_at":1,"behind":false}]`, set.After.ID)
		for name, args := range map[string]string{
			"gates_open":      "1000000, '{1,2,3}'",
			"buckets_arrived": "",
			"permits_free":    "'{1,2,3}'",
			"permits_next":    "0, 0, 10",
			"buckets_due":     "100, 1000",
			"candidates":      "'" + bucket + "'",
			"buckets_named":   "'" + bucket + "'",
			"buckets_decided": "'" + bucket + "'",
			"buckets_next":    "",
			"admit":           fmt.Sprintf(`'[{"task_id":%d,"attempt":1,"permits":%s}]'`, keys+1, bucket),
		} {
			run("prepare " + name + " as " + s.Text(name))
			if args != "" {
				args = "(" + args + ")"
			}
			run("begin")
			var text string
			var plans []struct{ Plan node }
			if err := conn.QueryRowContext(t.Context(), "explain (analyze, buffers, format json) execute "+name+args).Scan(&text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			run("rollback")
			if err := json.Unmarshal([]byte(text), &plans); err != nil {
				t.Fatal(err)
			}
			if pages := plans[0].Plan.Hit + plans[0].Plan.Read; pages > few {
				t.Errorf("%s, %s, reads %d pages: %s", name, planned, pages, text)
			}
		}
	}
}

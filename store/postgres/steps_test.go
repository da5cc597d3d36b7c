package postgres_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// change executes a statement on the tables of s.
func change(t *testing.T, s *postgres.Store, query string, args ...any) {
	t.Helper()
	tx, err := pgtest.Admin(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("set local search_path = " + s.Schema()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// scattered stores n tasks at each of several distant ids.
func scattered(t *testing.T, s *postgres.Store, n int) (tickets []message.Ticket) {
	t.Helper()
	for _, first := range []int64{1, postgres.RangeSize, postgres.RangeSize + 100, 3*postgres.RangeSize + 7, 1_000_000_000_000} {
		change(t, s, "select setval('tasks_id_seq', $1, false)", first)
		tickets = append(tickets, insert(t, s, n)...)
	}
	return tickets
}

// A range scan finds all tasks, and skips gaps at no cost. Otherwise a trillion ids would need twenty million steps.
func TestRangeScansReachEverything(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	began := time.Now()
	tickets := scattered(t, s, 3)
	n := len(tickets)
	expect := func(what string, got, want int, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", what, got, err, want)
		}
	}
	changed, err := s.UnticketQueue(t.Context(), holdfast.DefaultQueue)
	expect("unticketed", changed, n, err)

	// All tasks are ticketed again, at a time long ago.
	change(t, s, "delete from outbox")
	change(t, s, "update tasks set due_at = null, ticketed_at = now() - interval '1 hour'")
	if err := prove(t.Context(), t, s); err != nil {
		t.Fatal(err)
	}
	changed, _, err = s.UnticketLost(t.Context(), time.Second)
	expect("unticketed as lost", changed, n, err)

	worker := registerWorker(t, s)
	if _, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors); err != nil {
		t.Fatal(err)
	}
	if err := s.DeregisterWorker(t.Context(), worker, false); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 4, n - 1, n, n + 1} {
		for _, of := range []holdfast.WorkerID{0, worker} {
			tasks, err := s.Abandoned(t.Context(), of, limit)
			expect("abandoned", len(tasks), min(limit, n), err)
			for i, task := range tasks {
				if task.ID != tickets[i].Task {
					t.Fatalf("limit %d: task %d is %s, want %s", limit, i, task.ID, tickets[i].Task)
				}
			}
		}
	}

	change(t, s, "update tasks set state = 'done', created_at = now() - interval '2 hours', finished_at = now() - interval '1 hour'")
	ages := store.PruneAges{Done: time.Minute}
	deleted, err := s.Prune(t.Context(), ages, n-4)
	expect("pruned to a limit", deleted, n-4, err)
	deleted, err = s.Prune(t.Context(), ages, 1000)
	expect("pruned", deleted, 4, err)
	if took := time.Since(began); took > slow.Times(20*time.Second) {
		t.Errorf("it took %s", took)
	}
}

// A statement that matches no row reads at most its range of ids. The statistics of the table are from a time when the
// range was the whole table.
func TestStepsAreBounded(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	fill := func(n int) {
		change(t, s, "insert into tasks (type, queue, max_attempts, ticketed_at) select 't', 'default', 1, now() from generate_series(1, $1::int)", n)
	}
	change(t, s, "alter table tasks set (autovacuum_enabled = false)")
	fill(postgres.RangeSize)
	change(t, s, "analyze tasks")
	fill(2 * postgres.RangeSize)
	queues, moments := pq.StringArray{"nowhere"}, pq.StringArray{"2026-01-01"}
	for _, c := range []struct {
		name string
		args []any
	}{
		{"unticket_queue", []any{"nowhere", ""}},
		{"abandoned", []any{0}},
		{"prune_tasks", []any{1, 1, 1}},
	} {
		for _, after := range []int{0, postgres.RangeSize} {
			args := append([]any{after, after + postgres.RangeSize, 1000}, c.args...)
			if n := rowsRead(t, s, c.name, args); n > postgres.RangeSize || n == 0 {
				t.Errorf("%s after %d reads %d rows", c.name, after, n)
			}
		}
	}
	for block := range int64(2) {
		args := []any{pq.Int64Array{block}, postgres.RangeSize, 3 * postgres.RangeSize, 1000, queues, moments, 1, 0}
		if n := rowsRead(t, s, "unticket_lost", args); n < postgres.RangeSize || n > 2*postgres.RangeSize { // once from tasks, and once from ticketed
			t.Errorf("unticket_lost in block %d reads %d rows", block, n)
		}
	}
	if n := rowsRead(t, s, "steps", []any{0}); n > 2 {
		t.Errorf("choosing a range reads %d rows", n)
	}
}

// rowsRead executes a statement like a step, and returns the number of rows of tasks that it reads.
func rowsRead(t *testing.T, s *postgres.Store, name string, args []any) int {
	t.Helper()
	tx, err := pgtest.Admin(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(s.Text("steps_settings")); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := tx.QueryRow("explain (analyze, format json) "+s.Text(name), args...).Scan(&text); err != nil && err != sql.ErrNoRows {
		t.Fatalf("%s: %v", name, err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.read()
}

type plan struct {
	Relation string `json:"Relation Name"`
	Rows     int    `json:"Actual Rows"`
	Removed  int    `json:"Rows Removed by Filter"`
	Loops    int    `json:"Actual Loops"`
	Plans    []plan
}

func (p plan) read() int {
	n := 0
	if p.Relation == "tasks" {
		n = (p.Rows + p.Removed) * p.Loops
	}
	for _, child := range p.Plans {
		n += child.read()
	}
	return n
}

package sqlite_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// blockMany stores n ready tasks that a limit blocks. They are in ten queues.
func blockMany(tb testing.TB, s store.Store, n int, change func(statement string, args ...any)) {
	tb.Helper()
	by := store.Actor{Name: "anna", Surface: store.CommandLine}
	set, err := s.SetLimit(tb.Context(), by, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "t"}}, Concurrency: 1}.Change())
	if err != nil {
		tb.Fatal(err)
	}
	change(`insert into tasks (id, created_at, next_run_at, due_at, max_attempts, type, queue, payload, state)
		with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?1)
		select n, 1, 1, 253370764800000000, 3, 't', 'q' || n % 10, '{"user": 12345, "url": "https://example.com/hook"}', 'ready' from numbers`, n)
	change("insert into blocked (task_id, attempt, gate_id, blocked_at, bucket) select id, attempt, ?1, 1, '' from tasks", int64(set.After.ID))
}

// The count of the blocked tasks of each queue is bounded, and says so.
func TestManyBlockedTasksAreNotAllCounted(t *testing.T) {
	t.Parallel()
	s := open(t)
	blockMany(t, s, store.MaxCountedBlocked+1, func(statement string, args ...any) { change(t, s, statement, args...) })
	counts, err := s.BlockedByQueue(t.Context())
	total := int64(0)
	for _, n := range counts.Tasks {
		total += n
	}
	if err != nil || !counts.More || total != store.MaxCountedBlocked {
		t.Errorf("%d tasks in %d queues, more: %t, %v", total, len(counts.Tasks), counts.More, err)
	}
}

// BenchmarkBlockedByQueue measures what lists of queues read if 100,000 tasks are blocked:
//
//	go test -run '^$' -bench BlockedByQueue -benchtime 10x ./store/sqlite
func BenchmarkBlockedByQueue(b *testing.B) {
	s := open(b)
	blockMany(b, s, store.MaxCountedBlocked, func(statement string, args ...any) { change(b, s, statement, args...) })
	for _, read := range []struct {
		name string
		read func() error
	}{
		{"blocked by queue", func() error { _, err := s.BlockedByQueue(b.Context()); return err }},
		{"queues", func() error { _, err := s.Queues(b.Context()); return err }},
		{"limits", func() error { _, err := s.Limits(b.Context()); return err }},
	} {
		b.Run(read.name, func(b *testing.B) {
			began := time.Now()
			for b.Loop() {
				if err := read.read(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(b.N), "ms/call")
		})
	}
}

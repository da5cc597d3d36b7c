package sqlite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

// Each iteration is one batch. The benchmarks report tasks/s.

func benchTasks(n int) []holdfast.NewTask {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 10, Payload: []byte(`{"user": 12345, "url": "https://example.com/hook"}`)}
	}
	return tasks
}

func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := open(b)
			tasks := benchTasks(size)
			for b.Loop() {
				insertAll(b, s, tasks)
			}
			perSecond(b, size)
		})
	}
}

func BenchmarkInsertUnique(b *testing.B) {
	const size = 1000
	s := open(b)
	tasks := benchTasks(size)
	for n := 0; b.Loop(); n++ {
		for i := range tasks {
			tasks[i].Unique = fmt.Sprintf("key-%d-%d", n, i)
		}
		insertAll(b, s, tasks)
	}
	perSecond(b, size)
}

func BenchmarkInsertTagged(b *testing.B) {
	const size = 1000
	s := open(b)
	tasks := benchTasks(size)
	for n := 0; b.Loop(); n++ {
		for i := range tasks {
			tasks[i].Tags = []string{fmt.Sprint("tenant:", i%200), fmt.Sprint("order:", n*size+i)}
		}
		insertAll(b, s, tasks)
	}
	perSecond(b, size)
}

// BenchmarkInsertLong inserts long payloads, which have rows in another table.
func BenchmarkInsertLong(b *testing.B) {
	const size = 100
	s := open(b)
	tasks := benchTasks(size)
	for i := range tasks {
		tasks[i].Payload = []byte(`"` + strings.Repeat("long", 4000) + `"`)
	}
	for b.Loop() {
		insertAll(b, s, tasks)
	}
	perSecond(b, size)
}

// BenchmarkClaimApply measures the calls of the store from the ticket of a task to its success.
func BenchmarkClaimApply(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := open(b)
			worker := registerWorker(b, s)
			var tickets []message.Ticket
			for b.Loop() {
				if len(tickets) < size {
					b.StopTimer()
					tickets = nil
					for range 64 {
						tickets = append(tickets, insertAll(b, s, benchTasks(1000))...)
					}
					b.StartTimer()
				}
				claimApply(b, s, worker, tickets[:size])
				tickets = tickets[size:]
			}
			perSecond(b, size)
		})
	}
}

// BenchmarkRetry measures a claim, and a failure that is stored and retried at once.
func BenchmarkRetry(b *testing.B) {
	const size = 64
	s := open(b)
	worker := registerWorker(b, s)
	policy := holdfast.Policy{Strategy: holdfast.Fixed, MaxAttempts: 1, MaxCrashes: 1}
	tickets := insertAll(b, s, benchTasks(size))
	for b.Loop() {
		claims, err := s.Claim(b.Context(), worker, store.AnyOf("bench"), tickets, store.IntoExecutors)
		if err != nil {
			b.Fatal(err)
		}
		moves := make([]holdfast.Transition, size)
		for i, claim := range claims {
			claim.Task.MaxAttempts = 1 << 30
			moves[i], err = holdfast.Settle(*claim.Task, holdfast.Returned(errors.New("failed")), claim.Now, policy)
			if err != nil {
				b.Fatal(err)
			}
			tickets[i].Attempt = moves[i].NextAttempt
		}
		if _, err := s.Apply(b.Context(), moves); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b, size)
}

// BenchmarkIdle measures the calls that a janitor repeats all the time, on a store with nothing to do.
func BenchmarkIdle(b *testing.B) {
	s := open(b)
	insertAll(b, s, benchTasks(1000))
	calls := map[string]func(context.Context) error{
		"Now":   func(ctx context.Context) error { _, err := s.Now(ctx); return err },
		"Fence": func(ctx context.Context) error { _, err := s.Fence(ctx, time.Now(), 0, 0); return err },
		"DispatchDue": func(ctx context.Context) error {
			_, err := s.DispatchDue(ctx, store.Queues{}, 1000, nil)
			return err
		},
		"DispatchOutbox": func(ctx context.Context) error {
			_, err := s.DispatchOutbox(ctx, store.Queues{}, 100, nil)
			return err
		},
		"Turn":         func(ctx context.Context) error { _, err := s.Turn(ctx, "duty", time.Hour); return err },
		"SentinelsDue": func(ctx context.Context) error { _, err := s.SentinelsDue(ctx, time.Hour, time.Hour); return err },
		"UnticketLost": func(ctx context.Context) error { _, _, err := s.UnticketLost(ctx, time.Minute); return err },
		"Abandoned":    func(ctx context.Context) error { _, err := s.Abandoned(ctx, 0, 100); return err },
		"QueueNames":   func(ctx context.Context) error { _, err := s.QueueNames(ctx); return err },
		"Prune": func(ctx context.Context) error {
			_, err := s.Prune(ctx, store.PruneAges{Done: time.Hour, Cancelled: time.Hour, Archived: time.Hour, Workers: time.Hour}, 1000)
			return err
		},
	}
	for name, call := range calls {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			for b.Loop() {
				if err := call(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func insertAll(b *testing.B, s *sqlite.Store, tasks []holdfast.NewTask) []message.Ticket {
	b.Helper()
	inserted, err := s.Insert(context.Background(), tasks, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if len(inserted.Entries) != 1 {
		b.Fatalf("%d outbox entries", len(inserted.Entries))
	}
	return inserted.Entries[0].Tickets
}

func claimApply(b *testing.B, s *sqlite.Store, worker holdfast.WorkerID, tickets []message.Ticket) {
	b.Helper()
	claims, err := s.Claim(context.Background(), worker, store.AnyOf("bench"), tickets, store.IntoExecutors)
	if err != nil {
		b.Fatal(err)
	}
	moves := make([]holdfast.Transition, len(claims))
	for i, claim := range claims {
		moves[i], err = holdfast.Settle(*claim.Task, holdfast.Returned(nil), claim.Now, holdfast.DefaultPolicy())
		if err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Apply(context.Background(), moves); err != nil {
		b.Fatal(err)
	}
}

func perSecond(b *testing.B, size int) {
	b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// many is the number of finished tasks that BenchmarkReads inserts, in thousands. It inserts a tenth as many ready
// tasks, and a 25th as many dead ones.
var many = flag.Int("many", 20, "thousands of finished tasks of BenchmarkReads")

// BenchmarkReads measures the queries that people use. For published figures, use -many 1000 and -benchtime 100x.
func BenchmarkReads(b *testing.B) {
	s := open(b)
	const running = 1000
	statements := []string{
		fmt.Sprintf(`with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < %d),
		states as (select n, case when n > %d then 'ready' when n > %d then 'running' when n %% 25 = 0 then 'dead' else 'done' end as state from numbers)
		insert into tasks (type, queue, max_attempts, state, created_at, next_run_at, finished_at, dead_at, last_error, due_at, ticketed_at, worker_id, payload)
		select 'type ' || n %% 20, 'queue ' || n %% 5, 10, state, n, n, iif(state in ('done', 'dead'), n, null),
			iif(state = 'dead', n, null), iif(state = 'dead', 'HTTP 503: service unavailable', null),
			iif(state = 'ready' and n %% 10 = 0, 1 << 52, null), iif(state = 'ready' and n %% 10 <> 0, n, null),
			iif(state = 'running', %d, null), '{}'
		from states`, *many*1140+running, *many*1040+running, *many*1040, registerWorker(b, s)),
		"insert into queues (name, created_at) select distinct queue, 0 from tasks where true on conflict do nothing",
	}
	for _, statement := range statements {
		if err := s.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	began, steps := time.Now(), *many*1140/100_000+1 // a step counts a block of 100,000 ids
	for range steps {
		if _, err := s.Recount(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("the first count took %s in %d steps", time.Since(began), steps)
	storetest.BenchReads(b, s)
}

// BenchmarkClaimLimits measures claims of tasks without limits, among limits for other tasks. For published figures,
// use -benchtime 200x.
func BenchmarkClaimLimits(b *testing.B) {
	storetest.BenchmarkClaimLimits(b, func(b *testing.B) storetest.ClaimLimits {
		s := open(b)
		exec := func(statement string) {
			if err := s.Exec(b.Context(), statement); err != nil {
				b.Fatal(err)
			}
		}
		return storetest.ClaimLimits{Store: s, Exec: exec, Now: "0"}
	})
}

package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

// Each iteration is one batch on one connection. The benchmarks report tasks/s.

func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := pgtest.Open(b)
			tasks := make([]holdfast.NewTask, size)
			for i := range tasks {
				tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 10, Payload: []byte(`{"user": 12345, "url": "https://example.com/hook"}`)}
			}
			for b.Loop() {
				insertAll(b, s, tasks)
			}
			perSecond(b, size)
		})
	}
}

func BenchmarkInsertUnique(b *testing.B) {
	const size = 1000
	s := pgtest.Open(b)
	tasks := make([]holdfast.NewTask, size)
	for n := 0; b.Loop(); n++ {
		for i := range tasks {
			tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 10, Unique: fmt.Sprintf("key-%d-%d", n, i)}
		}
		insertAll(b, s, tasks)
	}
	perSecond(b, size)
}

func BenchmarkInsertTagged(b *testing.B) {
	const size = 1000
	s := pgtest.Open(b)
	tasks := make([]holdfast.NewTask, size)
	for n := 0; b.Loop(); n++ {
		for i := range tasks {
			tags := []string{fmt.Sprint("tenant:", i%200), fmt.Sprint("order:", n*size+i)}
			tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 10, Payload: []byte(`{"user": 12345, "url": "https://example.com/hook"}`), Tags: tags}
		}
		insertAll(b, s, tasks)
	}
	perSecond(b, size)
}

// BenchmarkClaimApply measures the calls of the store from the ticket of a task to its success.
func BenchmarkClaimApply(b *testing.B) { benchmarkClaimApply(b, holdfast.KeepRetried) }

// BenchmarkClaimApplyRecorded is BenchmarkClaimApply with a record of each success.
func BenchmarkClaimApplyRecorded(b *testing.B) { benchmarkClaimApply(b, holdfast.KeepAll) }

func benchmarkClaimApply(b *testing.B, keep holdfast.Keep) {
	policy := holdfast.DefaultPolicy()
	policy.KeepAttempts = keep
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := pgtest.Open(b)
			worker, err := s.RegisterWorker(b.Context(), store.WorkerInfo{Name: "bench"}, time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			tasks := make([]holdfast.NewTask, max(size, 1000))
			for i := range tasks {
				tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 10, Payload: []byte(`{"user": 12345, "url": "https://example.com/hook"}`)}
			}
			var tickets []message.Ticket
			for b.Loop() {
				if len(tickets) == 0 {
					b.StopTimer()
					tickets = insertAll(b, s, tasks)
					b.StartTimer()
				}
				claimApply(b, s, worker, tickets[:size], policy)
				tickets = tickets[size:]
			}
			perSecond(b, size)
		})
	}
}

// BenchmarkRetry measures a claim, and a failure that is stored and retried at once.
func BenchmarkRetry(b *testing.B) {
	const size = 1000
	s := pgtest.Open(b)
	worker, err := s.RegisterWorker(b.Context(), store.WorkerInfo{Name: "bench"}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	tasks := make([]holdfast.NewTask, size)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "bench", Queue: "default", MaxAttempts: 1 << 30}
	}
	policy := holdfast.Policy{Strategy: holdfast.Fixed, MaxAttempts: 1, MaxCrashes: 1}
	tickets := insertAll(b, s, tasks)
	for b.Loop() {
		claims, err := s.Claim(b.Context(), worker, store.AnyOf("bench"), tickets, store.IntoExecutors)
		if err != nil {
			b.Fatal(err)
		}
		moves := make([]holdfast.Transition, size)
		for i, claim := range claims {
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

func insertAll(b *testing.B, s *postgres.Store, tasks []holdfast.NewTask) []message.Ticket {
	inserted, err := s.Insert(context.Background(), tasks, time.Second)
	if err != nil {
		b.Fatal(err)
	}
	if len(inserted.Entries) != 1 {
		b.Fatalf("%d outbox entries", len(inserted.Entries))
	}
	return inserted.Entries[0].Tickets
}

func claimApply(b *testing.B, s *postgres.Store, worker holdfast.WorkerID, tickets []message.Ticket, policy holdfast.Policy) {
	claims, err := s.Claim(context.Background(), worker, store.AnyOf("bench"), tickets, store.IntoExecutors)
	if err != nil {
		b.Fatal(err)
	}
	moves := make([]holdfast.Transition, len(claims))
	for i, claim := range claims {
		moves[i], err = holdfast.Settle(*claim.Task, holdfast.Returned(nil), claim.Now, policy)
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
var many = flag.Int("many", 100, "thousands of finished tasks of BenchmarkReads")

// BenchmarkReads measures the queries that people use. For published figures, use -many 5000 and -benchtime 100x.
func BenchmarkReads(b *testing.B) {
	s := pgtest.Open(b)
	worker, err := s.RegisterWorker(b.Context(), store.WorkerInfo{Name: "bench"}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	const running = 1000
	exec := func(query string, args ...any) {
		b.Helper()
		if _, err := pgtest.Admin(b).Exec("set search_path = "+s.Schema()+"; "+query, args...); err != nil {
			b.Fatal(err)
		}
	}
	exec(fmt.Sprintf(`insert into tasks (type, queue, max_attempts, state, finished_at, dead_at, last_error, due_at, ticketed_at, worker_id)
		select 'type ' || n %% 20, 'queue ' || n %% 5, 10, state, case when state in ('done', 'dead') then now() end,
			case when state = 'dead' then now() end, case when state = 'dead' then 'HTTP 503: service unavailable' end,
			case when state = 'ready' and n %% 10 = 0 then now() + interval '1 hour' end,
			case when state = 'ready' and n %% 10 <> 0 then now() end, case when state = 'running' then %d end
		from (
			select n, case when n > %d then 'ready' when n > %d then 'running' when n %% 25 = 0 then 'dead' else 'done' end as state
			from generate_series(1, %d) n
		) as tasks`, worker, *many*1040+running, *many*1040, *many*1140+running))
	exec("insert into queues (name) select distinct queue from tasks on conflict do nothing")
	if _, err := pgtest.Admin(b).Exec("vacuum analyze " + s.Schema() + ".tasks"); err != nil {
		b.Fatal(err)
	}
	began, steps := time.Now(), *many*1140/100_000+1 // a step counts a block of 100,000 ids
	for range steps {
		if _, err := s.Recount(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("the first count took %s in %d steps", time.Since(began), steps)
	if _, err := s.FoldCounts(b.Context(), 1e6); err != nil {
		b.Fatal(err)
	}
	page, err := s.List(b.Context(), store.Filter{Before: holdfast.TaskID(*many*1040 + running + 1), Limit: running})
	if err != nil {
		b.Fatal(err)
	}
	held := make([]holdfast.TaskID, len(page.Tasks))
	for i, task := range page.Tasks {
		held[i] = task.ID
	}
	if _, err := s.Renew(b.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Tasks: held}); err != nil {
		b.Fatal(err)
	}
	storetest.BenchReads(b, s)
}

// BenchmarkClaimLimits measures claims of tasks without limits, among limits for other tasks. For published figures,
// use -benchtime 200x.
func BenchmarkClaimLimits(b *testing.B) {
	storetest.BenchmarkClaimLimits(b, func(b *testing.B) storetest.ClaimLimits {
		s := pgtest.Open(b)
		exec := func(statement string) {
			tx, err := s.Begin(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for _, text := range []string{"set local search_path = " + s.Schema(), statement} {
				if _, err := tx.Exec(text); err != nil {
					b.Fatal(err)
				}
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
		}
		return storetest.ClaimLimits{Store: s, Exec: exec, Now: "now()"}
	})
}

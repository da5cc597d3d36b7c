package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// Each iteration is one batch on one connection. The result is in tasks/s.

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

// BenchmarkInsertTagged inserts tasks with two tags.
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
			moves[i], err = holdfast.Settle(claim.Task, holdfast.Returned(errors.New("failed")), claim.Now, policy)
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
		moves[i], err = holdfast.Settle(claim.Task, holdfast.Returned(nil), claim.Now, policy)
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

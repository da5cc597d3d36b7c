package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// newCrowd returns a store with 30 tasks, a client, and the tickets of the tasks. The clock advances with each reading.
func newCrowd(b *testing.B) (*memory.Store, *memory.Client, []message.Ticket) {
	b.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := memory.New(func() time.Time {
		now = now.Add(time.Microsecond)
		return now
	})
	c := s.Client(func(_ context.Context, _ memory.Step, effect func()) error {
		effect()
		return nil
	})
	tasks := make([]holdfast.NewTask, 30)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "a", Queue: holdfast.DefaultQueue, Payload: []byte(`{"n":1}`), MaxAttempts: 3}
	}
	inserted, err := c.Insert(b.Context(), tasks, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	return s, c, inserted.Entries[0].Tickets
}

func BenchmarkEffects(b *testing.B) {
	s, c, tickets := newCrowd(b)
	ctx := b.Context()
	worker, err := c.RegisterWorker(ctx, store.WorkerInfo{Name: "w", Concurrency: 1}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	snapshot := s.Snapshot()
	calls := map[string]func() error{
		"Now":   func() error { _, err := c.Now(ctx); return err },
		"Renew": func() error { _, err := c.Renew(ctx, store.Renewal{Worker: worker, Lease: time.Hour}); return err },
		"Claim": func() error { // two effects: no ticket is claimed
			_, err := c.Claim(ctx, worker, store.AnyOf("b"), tickets[:3], store.IntoExecutors)
			return err
		},
		"Positions": func() error { _, err := c.Positions(ctx, tickets[:3]); return err },
		"Fence":     func() error { _, err := c.Fence(ctx, time.Time{}, 0, 0); return err },
		"DispatchDue": func() error {
			_, err := c.DispatchDue(ctx, store.Queues{}, 100, func(_ context.Context, due []store.Due) []bool { return make([]bool, len(due)) })
			return err
		},
		"Unticket":     func() error { _, err := c.Unticket(ctx, tickets[9:10]); return err },
		"Snapshot":     func() error { s.Snapshot(); return nil },
		"SnapshotInto": func() error { s.SnapshotInto(snapshot); return nil },
	}
	for _, name := range []string{"Now", "Renew", "Claim", "Positions", "Fence", "DispatchDue", "Unticket", "Snapshot", "SnapshotInto"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := calls[name](); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

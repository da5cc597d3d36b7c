package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// BenchReads measures the queries of people on a store with many tasks. Each benchmark reports the median and the 95th
// percentile of its calls in milliseconds.
func BenchReads(b *testing.B, s desk.Store) {
	running := store.Filter{States: []holdfast.State{holdfast.Running}}
	for _, read := range []struct {
		name string
		f    func(context.Context) error
	}{
		{"count", func(ctx context.Context) error { _, err := s.Count(ctx, store.Filter{}); return err }},
		{"count-type", func(ctx context.Context) error { _, err := s.Count(ctx, store.Filter{Type: "type 1"}); return err }},
		{"groups", func(ctx context.Context) error { _, err := s.CountGroups(ctx); return err }},
		{"queues", func(ctx context.Context) error { _, err := s.Queues(ctx); return err }},
		{"list-running", func(ctx context.Context) error { _, err := s.List(ctx, running); return err }},
		{"count-error", func(ctx context.Context) error { _, err := s.Count(ctx, store.Filter{Error: "absent"}); return err }},
		{"recount", func(ctx context.Context) error { _, err := s.Recount(ctx); return err }},
	} {
		b.Run(read.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := read.f(b.Context()); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*95/100]), "p95-ms")
		})
	}
}

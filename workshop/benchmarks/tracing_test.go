package benchmarks

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/tracing"
)

// discardSpans is an exporter.
type discardSpans struct{}

func (discardSpans) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discardSpans) Shutdown(context.Context) error                             { return nil }

// BenchmarkTracing compares the rate at which one process stores and runs tasks on a file, with a handler that does
// nothing: without tracing, with all spans recorded, and with a sampler that records none. Each round measures all three,
// so that a change of the machine's speed affects them alike. The exporter discards the spans. The least
// time of the processor in a round is less sensitive to other load than the rate.
func BenchmarkTracing(b *testing.B) {
	const tasks = 50_000
	modes := []string{"off", "recorded", "dropped"}
	spent, cpu := make(map[string]time.Duration), make(map[string]time.Duration)
	rounds := 0
	for b.Loop() {
		for i := range modes {
			mode := modes[(i+rounds)%len(modes)]
			before := processorTime(b)
			spent[mode] += runTraced(b, mode, tasks)
			if used := processorTime(b) - before; cpu[mode] == 0 || used < cpu[mode] {
				cpu[mode] = used
			}
		}
		rounds++
	}
	for _, mode := range modes {
		b.ReportMetric(float64(rounds*tasks)/spent[mode].Seconds(), mode+"-tasks/s")
		b.ReportMetric(float64(cpu[mode].Microseconds())/tasks, mode+"-least-cpu-µs/task")
	}
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// runTraced returns how long one process takes to store tasks and to run them.
func runTraced(b *testing.B, mode string, tasks int64) time.Duration {
	b.Helper()
	options := []queue.Option{
		queue.Environment(nil), queue.File(filepath.Join(b.TempDir(), "holdfast.db")), queue.NoSignals(), queue.Logger(nil),
	}
	if mode != "off" {
		sampler := map[string]sdktrace.Sampler{"recorded": sdktrace.AlwaysSample(), "dropped": sdktrace.NeverSample()}[mode]
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discardSpans{}), sdktrace.WithSampler(sdktrace.ParentBased(sampler)), sdktrace.WithIDGenerator(tracing.IDGenerator()))
		defer func() { _ = provider.Shutdown(context.Background()) }()
		options = append(options, queue.Tracer(tracing.New(provider)))
	}
	q, err := queue.Open(b.Context(), options...)
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	var left atomic.Int64
	left.Store(tasks)
	done := make(chan struct{})
	_ = queue.Handle(q, "noop", func(context.Context, holdfast.Task, json.RawMessage) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(b.Context())
	go func() { ended <- q.Run(ctx) }()
	batch := make([]queue.NewTask, 1000)
	for i := range batch {
		batch[i] = queue.NewTask{Type: "noop", Payload: strings.Repeat("x", payloadSize-2)}
	}
	began := time.Now()
	for range tasks / int64(len(batch)) {
		if _, err := q.EnqueueMany(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		b.Fatal(fmt.Errorf("%d tasks are left", left.Load()))
	}
	took := time.Since(began)
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	return took
}

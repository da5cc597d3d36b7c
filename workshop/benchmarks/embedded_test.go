package benchmarks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// BenchmarkEmbedded enqueues tasks in bulk in a process that serves a file. The process runs them at the same time,
// with a handler that does nothing. The measured time ends when the last result is stored.
func BenchmarkEmbedded(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			var rate, enqueued, peak, file float64
			rounds := 0.0
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "holdfast.db")
				env := append(os.Environ(), "HOLDFAST_DATABASE_URL=sqlite:"+path, "HOLDFAST_AMQP_URLS=inproc:", "HOLDFAST_LISTEN=", tasksVariable+"="+strconv.Itoa(n))
				s := runRole(b, env, "server")
				rounds++
				rate += float64(n) / s["seconds"]
				enqueued += float64(n) / s["enqueue_seconds"]
				peak = max(peak, s["peak_mib"])
				if info, err := os.Stat(path); err == nil {
					file = float64(info.Size()) / float64(n)
				}
				_ = os.RemoveAll(filepath.Dir(path))
			}
			b.ReportMetric(rate/rounds, "tasks/s")
			b.ReportMetric(enqueued/rounds, "enqueued/s")
			b.ReportMetric(peak, "peak-MiB")
			b.ReportMetric(file, "file-bytes/task")
			b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
		})
	}
}

// serve enqueues the tasks in the process that runs them.
func serve(tasks int) error {
	backend, err := open(os.Environ())
	if err != nil {
		return err
	}
	defer backend.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- daemon.Serve(ctx, daemon.Options{Backend: backend, Handlers: func(r *consumer.Registry) {
			r.Add("noop", consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
		}})
	}()
	p := backend.Producer(nil)
	defer p.Close()
	if _, err := p.Enqueue(ctx, holdfast.NewTask{Type: "noop"}); err != nil {
		return err
	}
	if err := allDone(ctx, backend, 1); err != nil { // the server is ready
		return err
	}
	batch := make([]holdfast.NewTask, chunk)
	for i := range batch {
		batch[i] = holdfast.NewTask{Type: "noop", Payload: []byte(`"` + strings.Repeat("x", payloadSize-2) + `"`)}
	}
	start := time.Now()
	for left := tasks; left > 0; left -= chunk {
		if _, err := p.EnqueueMany(ctx, batch[:min(chunk, left)]); err != nil {
			return err
		}
	}
	fmt.Printf("enqueue_seconds %f\n", time.Since(start).Seconds())
	if err := allDone(ctx, backend, int64(tasks)+1); err != nil {
		return err
	}
	fmt.Printf("seconds %f\n", time.Since(start).Seconds())
	stop()
	return <-ended
}

func allDone(ctx context.Context, backend *app.Backend, n int64) error {
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		counts, err := backend.Store.Count(ctx, store.Filter{States: []holdfast.State{holdfast.Ready, holdfast.Running}})
		if err != nil {
			return err
		}
		if counts.By[holdfast.Ready]+counts.By[holdfast.Running] == 0 {
			counts, err = backend.Store.Count(ctx, store.Filter{})
			if err == nil && counts.By[holdfast.Done] != n {
				err = fmt.Errorf("got %v, want %d tasks done", counts, n)
			}
			return err
		}
	}
}

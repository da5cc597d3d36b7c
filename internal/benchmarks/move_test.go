package benchmarks

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// BenchmarkMigrateBackend carries 100,000 tasks from a file to an empty schema. The figure is from the first
// look at the file to the moment they are all tasks of the server.
func BenchmarkMigrateBackend(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	const n = 100_000
	log := logrus.New()
	log.SetOutput(io.Discard)
	var rate, rounds float64
	for b.Loop() {
		env := corner(b, n)
		url := configs.EmbeddedDatabase + filepath.Join(b.TempDir(), "holdfast.db")
		fill(b, append(env, "DATABASE_URL="+url, "AMQP_URL="+configs.EmbeddedBroker), n)
		cfg, err := configs.Load(configs.Options{Env: env})
		if err != nil {
			b.Fatal(err)
		}
		carried, err := app.MoveAway(b.Context(), app.MoveOptions{From: url, To: os.Getenv("DATABASE_URL"), Config: cfg, Into: store.IntoEmpty, Log: log})
		if err != nil || carried.Import.Tasks != n {
			b.Fatalf("%+v, %v", carried, err)
		}
		rounds++
		rate += n / carried.Took.Seconds()
	}
	b.ReportMetric(rate/rounds, "tasks/s")
	b.ReportMetric(0, "ns/op") // says nothing here
}

// fill stores n tasks.
func fill(b *testing.B, env []string, n int) {
	b.Helper()
	backend, err := open(env)
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	p := backend.Producer(nil)
	defer p.Close()
	payload := []byte(`"` + strings.Repeat("x", payloadSize-2) + `"`)
	tasks := make([]holdfast.NewTask, chunk)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "noop", Payload: payload}
	}
	for range n / chunk {
		if _, err := p.EnqueueMany(b.Context(), tasks); err != nil {
			b.Fatal(err)
		}
	}
}

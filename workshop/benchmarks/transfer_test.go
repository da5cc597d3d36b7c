package benchmarks

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

// BenchmarkImport exports 100,000 tasks from a file and imports them into an empty schema, through a pipe. The measured
// time includes the comparison of the schema with the export.
func BenchmarkImport(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	const n = 100_000
	log := logrus.New()
	log.SetOutput(io.Discard)
	var rate, rounds float64
	for b.Loop() {
		env := isolatedEnv(b, n)
		file := append(env, "DATABASE_URL="+configs.EmbeddedDatabase+filepath.Join(b.TempDir(), "holdfast.db"), "AMQP_URL="+configs.EmbeddedBroker)
		fill(b, file, n)
		start := time.Now()
		from, to := io.Pipe()
		go func() {
			_, _, err := app.Export(b.Context(), load(b, file), log, to)
			_ = to.CloseWithError(err) // always returns nil
		}()
		done, err := app.Import(b.Context(), load(b, env), log, from)
		if err != nil || done.Stored != n {
			b.Fatalf("%+v, %v", done, err)
		}
		rounds++
		rate += n / time.Since(start).Seconds()
	}
	b.ReportMetric(rate/rounds, "tasks/s")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

func load(b *testing.B, env []string) configs.Config {
	cfg, err := configs.Load(configs.Options{Env: env})
	if err != nil {
		b.Error(err)
	}
	return cfg
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

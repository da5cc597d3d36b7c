package app

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// benchServers returns a configuration of the servers. A Bench must create nothing in its schema and under its prefix.
func benchServers(t *testing.T) configs.Config {
	t.Helper()
	cfg := configs.Default()
	cfg.Database.URL, cfg.AMQP.URLs = pgtest.URL(t), []string{os.Getenv("AMQP_URL")}
	if cfg.AMQP.URLs[0] == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	cfg.Database.Schema = pgtest.Name(t)
	return cfg
}

func newBench(t *testing.T, cfg configs.Config) *Bench {
	t.Helper()
	b, err := NewBench(cfg, logs.Limited(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func schemaExists(t *testing.T, name string) bool {
	t.Helper()
	var found bool
	must(t, pgtest.Admin(t).QueryRow("select exists (select from pg_namespace where nspname = $1)", name).Scan(&found))
	return found
}

// left returns the names of the objects of a topology that exist in the broker. It opens another connection.
func left(t *testing.T, cfg configs.Config, topology broker.Topology) (names []string) {
	t.Helper()
	b, err := openRabbitMQ(cfg, logs.Limited(nil))(t.Context())
	must(t, err)
	defer b.Close()
	queues := []string{holdfast.DefaultQueue}
	missing, err := topology.Verify(t.Context(), b, queues)
	must(t, err)
	for _, o := range append(topology.Queues(queues), topology.MarkerObject()) {
		if !slices.Contains(missing, o.Name) {
			names = append(names, o.Name)
		}
	}
	return names
}

// runTwo stores two tasks and waits until a worker has run both.
func runTwo(t *testing.T, q *BenchQueue) {
	t.Helper()
	must(t, q.Fill(t.Context(), [][]byte{[]byte(`"filled"`)}))
	must(t, q.Put(t.Context(), []byte(`"put"`), time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	seen := make(chan string, 2)
	must(t, q.Work(ctx, func(payload []byte) error {
		if seen <- string(payload); len(seen) == 2 {
			cancel()
		}
		return nil
	}))
	if got := []string{<-seen, <-seen}; !slices.Contains(got, `"filled"`) || !slices.Contains(got, `"put"`) {
		t.Errorf("ran %s, want both tasks", got)
	}
}

func TestBenchOnServersLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg := benchServers(t)
	b := newBench(t, cfg)
	if b.cfg.Database.Schema == cfg.Database.Schema || b.cfg.AMQP.Prefix == cfg.AMQP.Prefix {
		t.Fatalf("the bench uses the schema or prefix of the configuration: %s", b.Place())
	}
	q, err := b.Recreate(t.Context())
	must(t, err)
	must(t, q.Put(t.Context(), []byte(`"left over"`), 0))
	first := q.backend.Topology
	q, err = b.Recreate(t.Context())
	must(t, err)
	if slices.Contains(left(t, cfg, first), first.Marker()) {
		t.Error("the first call's queues were not deleted")
	}
	runTwo(t, q)
	topology := q.backend.Topology
	if !schemaExists(t, b.cfg.Database.Schema) || len(left(t, cfg, topology)) == 0 {
		t.Error("the bench has not created its schema or its queues")
	}
	for range 2 {
		must(t, b.Delete(t.Context()))
	}
	if schemaExists(t, b.cfg.Database.Schema) || len(left(t, cfg, topology)) > 0 {
		t.Error("the schema or queues are left")
	}
	if schemaExists(t, cfg.Database.Schema) {
		t.Error("the bench has created the schema of the configuration")
	}
}

func TestBenchReportsWhatIsLeftAndCanDeleteItLater(t *testing.T) {
	t.Parallel()
	cfg := benchServers(t)
	direct := cfg
	address, err := url.Parse(cfg.AMQP.URLs[0])
	must(t, err)
	proxy, err := netfault.New(address.Host)
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	address.Host = proxy.Addr()
	cfg.AMQP.URLs = []string{address.String()}

	b := newBench(t, cfg)
	q, err := b.Recreate(t.Context())
	must(t, err)
	topology := q.backend.Topology
	proxy.Refuse()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = b.Delete(ctx)
	schema, prefix := b.cfg.Database.Schema, b.cfg.AMQP.Prefix
	for _, want := range []string{"holdfast topology delete --yes --schema " + schema + " --prefix " + prefix, "drop schema " + schema + " cascade"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	if !schemaExists(t, schema) || len(left(t, direct, topology)) == 0 {
		t.Error("the schema or the queues are deleted, but the commands need them")
	}
	proxy.Heal()
	must(t, q.backend.Ping(t.Context(), slow.Patience()))
	must(t, b.Delete(t.Context()))
	if schemaExists(t, schema) || len(left(t, direct, topology)) > 0 {
		t.Error("the schema or queues are left")
	}
}

func TestBenchOnAFileLeavesNothing(t *testing.T) {
	t.Parallel()
	own := filepath.Join(t.TempDir(), "holdfast.db")
	cfg := configs.Default()
	cfg.Database.URL = configs.EmbeddedDatabase + own
	b := newBench(t, cfg)
	for range 2 {
		q, err := b.Recreate(t.Context())
		must(t, err)
		runTwo(t, q)
	}
	must(t, b.Delete(t.Context()))
	for _, path := range []string{own, b.folder} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestBenchPlaceHidesPasswords(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Database.URL, cfg.AMQP.URLs = "postgres://me:hunter2@db/app", []string{"amqp://me:hunter2@mq/"}
	b := newBench(t, cfg)
	if place := b.Place(); strings.Contains(place, "hunter2") || !strings.Contains(place, "schema holdfast_bench_") || !strings.Contains(place, "queues holdfast-bench-") {
		t.Error(place)
	}
	cfg.AMQP.URLs = []string{configs.EmbeddedBroker}
	if _, err := NewBench(cfg, logs.Limited(nil), nil); holdfast.HintOf(err).Kind != holdfast.HintSetBroker {
		t.Errorf("without a broker: %v", err)
	}
}

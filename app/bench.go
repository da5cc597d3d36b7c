package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
)

// benchPatience is how long a measurement waits for RabbitMQ before it begins.
const benchPatience = 3 * time.Second

// Bench is a place to measure a configuration's servers in: a schema and queues that exist for nothing else, or a file in a
// folder of its own. Nothing that was there before is touched. It is not safe for concurrent use.
type Bench struct {
	cfg      configs.Config
	log      logrus.FieldLogger
	observer holdfast.Observer
	folder   string // of the file; empty with servers
	queue    *BenchQueue
	// What was made and not deleted yet.
	schema, queues bool
}

// NewBench chooses names that nobody has. On servers it makes nothing, and asks nothing. observer is that of NewBenchQueue.
func NewBench(cfg configs.Config, log logrus.FieldLogger, observer holdfast.Observer) (*Bench, error) {
	chosen, err := choose(cfg, log)
	if err == nil {
		err = chosen.mismatch
	}
	if err != nil {
		return nil, err
	}
	b := &Bench{cfg: cfg, log: log, observer: observer}
	if cfg.Embedded() {
		if b.folder, err = os.MkdirTemp(benchFolder(), "holdfast-bench-"); err != nil {
			return nil, fmt.Errorf("make a folder for the file: %w; set TMPDIR to a folder you may write to", err)
		}
		b.cfg.Database.URL = configs.EmbeddedDatabase + filepath.Join(b.folder, "holdfast.db")
		return b, nil
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // it never fails
	name := hex.EncodeToString(random[:])
	b.cfg.Database.Schema, b.cfg.AMQP.Prefix = "holdfast_bench_"+name, "holdfast-bench-"+name
	return b, nil
}

// benchFolder is where temporary files are on a disk: /tmp is in memory on many machines, which would be measured then.
func benchFolder() string {
	const onDisk = "/var/tmp"
	if info, err := os.Stat(onDisk); os.Getenv("TMPDIR") == "" && err == nil && info.IsDir() {
		return onDisk
	}
	return os.TempDir()
}

// Place says for people where it is, without passwords.
func (b *Bench) Place() string {
	if b.folder != "" {
		return "the file " + filepath.Join(b.folder, "holdfast.db")
	}
	return fmt.Sprintf("%s, schema %s, and %s, queues %s.*", configs.RedactURL(b.cfg.Database.URL), b.cfg.Database.Schema,
		strings.Join(redacted(b.cfg.AMQP.URLs), ", "), b.cfg.AMQP.Prefix)
}

// Fresh deletes what is there, makes all of it anew, and returns a queue on it that is empty. The queue is valid until
// the next call of Fresh or Delete. Errors are those of Open and Ping, and of whatever may not be made; Delete cleans up
// after them too.
func (b *Bench) Fresh(ctx context.Context) (*BenchQueue, error) {
	if err := b.Delete(ctx); err != nil {
		return nil, err
	}
	if b.folder != "" {
		if err := os.MkdirAll(b.folder, 0o700); err != nil {
			return nil, err
		}
	}
	s, err := openStore(ctx, b.cfg, b.log, true)
	if err != nil {
		return nil, err
	}
	b.schema = true
	_, err = s.migrate(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	backend, err := Open(ctx, b.cfg, b.log)
	if err != nil {
		return nil, err
	}
	b.queue = NewBenchQueue(backend, b.observer)
	if b.folder != "" {
		return b.queue, nil // its queues are in this process
	}
	if err := backend.Ping(ctx, benchPatience); err != nil {
		return nil, err
	}
	b.queues = true
	_, err = backend.Rebuild(ctx)
	return b.queue, err
}

// Delete deletes everything that was made. Its error says what is left, and how to delete that; it can be called again.
func (b *Bench) Delete(ctx context.Context) error {
	if err := b.deleteQueues(ctx); err != nil {
		schema, prefix := b.cfg.Database.Schema, b.cfg.AMQP.Prefix // the names of the queues are made with what is in the schema
		return fmt.Errorf("%w; left behind are queues in RabbitMQ and a schema in PostgreSQL; delete them with: holdfast topology delete --yes --schema %s --prefix %s; and then in the database: drop schema %s cascade",
			err, schema, prefix, schema)
	}
	var closing error
	if b.queue != nil {
		closing = b.queue.Close()
		b.queue = nil
	}
	if b.folder != "" {
		if err := os.RemoveAll(b.folder); err != nil {
			return errors.Join(closing, fmt.Errorf("%w; left behind is the folder %s", err, b.folder))
		}
		return closing
	}
	if err := b.dropSchema(ctx); err != nil {
		return errors.Join(closing, fmt.Errorf("%w; left behind is a schema in PostgreSQL; delete it in the database with: drop schema %s cascade", err, b.cfg.Database.Schema))
	}
	return closing
}

func (b *Bench) deleteQueues(ctx context.Context) error {
	if !b.queues {
		return nil
	}
	_ = b.queue.producer.Close() // nothing may be published any more; it never fails
	topology, broker, lanes := b.queue.backend.Topology, b.queue.backend.Broker, []string{holdfast.DefaultLane}
	missing, err := topology.Verify(ctx, broker, lanes)
	if err == nil && len(missing) <= len(topology.Queues(lanes)) { // else there is none, nor the marker: who may make none may delete none
		err = topology.Delete(ctx, broker, lanes)
	}
	b.queues = err != nil
	return err
}

func (b *Bench) dropSchema(ctx context.Context) error {
	if !b.schema {
		return nil
	}
	s, err := openStore(ctx, b.cfg, b.log, false)
	if err != nil {
		return err
	}
	err = errors.Join(s.Store.(schemaDropper).DropSchema(ctx), s.Close())
	b.schema = err != nil
	return err
}

// schemaDropper is what only a store on a server can do.
type schemaDropper interface {
	DropSchema(ctx context.Context) error
}

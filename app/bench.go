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

// benchConnectWait is how long a measurement waits for RabbitMQ before it starts.
const benchConnectWait = 3 * time.Second

// Bench is a temporary place for measurements: a schema and AMQP queues of its own on the servers of a configuration,
// or a file in a temporary folder. It changes no other data. It is not safe for concurrent use.
type Bench struct {
	cfg      configs.Config
	log      logrus.FieldLogger
	observer holdfast.Observer
	folder   string // the folder of the file; empty with servers
	queue    *BenchQueue
	// schema and queues report whether Recreate has created them and Delete has not deleted them.
	schema, queues bool
}

// NewBench returns a Bench with random names. It does not connect to servers; for a file it creates a temporary folder.
// observer may be nil; see NewBenchQueue.
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
			return nil, fmt.Errorf("create a folder for the file: %w; set TMPDIR to a folder you may write to", err)
		}
		b.cfg.Database.URL = configs.EmbeddedDatabase + filepath.Join(b.folder, "holdfast.db")
		return b, nil
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := hex.EncodeToString(random[:])
	b.cfg.Database.Schema, b.cfg.AMQP.Prefix = "holdfast_bench_"+name, "holdfast-bench-"+name
	return b, nil
}

// benchFolder returns a folder for temporary files on a disk. On many machines /tmp is in memory, and the benchmark
// would not measure a disk.
func benchFolder() string {
	const onDisk = "/var/tmp"
	if info, err := os.Stat(onDisk); os.Getenv("TMPDIR") == "" && err == nil && info.IsDir() {
		return onDisk
	}
	return os.TempDir()
}

// Place describes the place for people, without passwords.
func (b *Bench) Place() string {
	if b.folder != "" {
		return "the file " + filepath.Join(b.folder, "holdfast.db")
	}
	return fmt.Sprintf("%s, schema %s, and %s, queues %s.*", configs.RedactURL(b.cfg.Database.URL), b.cfg.Database.Schema,
		strings.Join(redacted(b.cfg.AMQP.URLs), ", "), b.cfg.AMQP.Prefix)
}

// Recreate deletes the place, creates it again, and returns an empty queue on it. The queue is valid until the next
// call of Recreate or Delete. Errors are those of Open and Ping, and of the servers if they refuse to create something.
// Delete also cleans up after an error.
func (b *Bench) Recreate(ctx context.Context) (*BenchQueue, error) {
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
		return b.queue, nil // the broker is inside this process
	}
	if err := backend.Ping(ctx, benchConnectWait); err != nil {
		return nil, err
	}
	b.queues = true
	_, err = backend.Rebuild(ctx)
	return b.queue, err
}

// Delete deletes everything that Recreate has created. Its error says what remains, and how a person can delete it. The
// caller may call Delete again.
func (b *Bench) Delete(ctx context.Context) error {
	if err := b.deleteQueues(ctx); err != nil {
		schema, prefix := b.cfg.Database.Schema, b.cfg.AMQP.Prefix // the command topology delete needs the schema
		return fmt.Errorf("%w; left behind: queues in RabbitMQ and a schema in PostgreSQL; delete them with: holdfast topology delete --yes --schema %s --prefix %s; and then in the database: drop schema %s cascade",
			err, schema, prefix, schema)
	}
	var closing error
	if b.queue != nil {
		closing = b.queue.Close()
		b.queue = nil
	}
	if b.folder != "" {
		if err := os.RemoveAll(b.folder); err != nil {
			return errors.Join(closing, fmt.Errorf("%w; left behind: the folder %s", err, b.folder))
		}
		return closing
	}
	if err := b.dropSchema(ctx); err != nil {
		return errors.Join(closing, fmt.Errorf("%w; left behind: a schema in PostgreSQL; delete it in the database with: drop schema %s cascade", err, b.cfg.Database.Schema))
	}
	return closing
}

func (b *Bench) deleteQueues(ctx context.Context) error {
	if !b.queues {
		return nil
	}
	_ = b.queue.producer.Close() // stops publishing; never fails
	topology, broker, queues := b.queue.backend.Topology, b.queue.backend.Broker, []string{holdfast.DefaultQueue}
	missing, err := topology.Verify(ctx, broker, queues)
	// Skip Delete if all objects are missing: a user who may not create them may not delete them either.
	if err == nil && len(missing) <= len(topology.Queues(queues)) {
		err = topology.Delete(ctx, broker, queues)
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

// schemaDropper is a store on a server.
type schemaDropper interface {
	DropSchema(ctx context.Context) error
}

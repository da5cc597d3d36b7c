// Package sqlite is the store in one file on this machine. Its driver is pure Go. With this store, Holdfast needs one
// binary, one file and no server.
//
// Each role of the store contract is a type in a file of its own, and a Store is the sum of the roles. All roles embed
// the same database: see database.go. Their statements are in sql/, named after the operations.
//
// # What the store promises
//
// Every transaction is on disk when its call returns. So it survives the end of the process and a crash of the machine.
//
// Calls that write wait for each other, in the order of the calls. Only a renewal of a lease goes before all that wait.
// To share the file with other processes, a call tries to lock the file every millisecond, and the process that serves
// the file takes precedence. A call gives up when its context ends, and after [busyLimit] at the latest. The store
// does not interrupt a transaction that has begun, because transactions are short. A long operation is many short
// transactions. Calls that only read never wait for calls that write.
//
// The clock is that of the machine. After the machine slept or its clock was set, the store ignores expired leases for
// some time; see Fence.
//
// Only one process at a time should run tasks from a file; [Store.Own] ensures that. Other processes may read the file
// and insert tasks at any time.
//
// # What the store keeps in memory
//
// The store remembers the tasks and outbox entries that it is publishing. If the process ends during that time, their
// tickets may or may not be published, and the next process publishes them again.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/internal/roles"
)

// readers is the number of connections that only read. More connections would not help, because SQLite uses the
// processor and seldom waits.
const readers = 4

// Options configures a Store. Path is required.
type Options struct {
	// Path is the path of the file; see ParseURL.
	Path string
	// Create creates the file and its folder if they do not exist, for this user only. It creates no tables: see
	// MigrateUp.
	Create bool
	Log    logrus.FieldLogger // nil discards
}

// Store is a store.Store in one file. It is safe for concurrent use.
type Store struct {
	*database
	inserter
	dispatcher
	leaser
	claimer
	applier
	shared
	*desk.Desk
	fencer
	repairer
	keeper
	counters
	gatekeeper
	migrator
	transfers
	ownership
	closing sync.Once
}

var _ store.Store = (*Store)(nil)

// Open opens the file. It neither creates nor checks the tables: see MigrateUp and CheckSchema. It refuses the database
// of another program.
//
// The error wraps holdfast.ErrNotFound if there is no file and Create is false. It wraps holdfast.ErrInvalid if the
// path cannot lead to a database of Holdfast, and holdfast.ErrUnavailable if a second try may succeed.
func Open(ctx context.Context, o Options) (*Store, error) {
	path, info, err := find(o.Path, o.Create)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", openOperation, err)
	}
	if err := checkAbandoned(path, info); err != nil {
		return nil, fmt.Errorf("%s: %w", openOperation, err)
	}
	d := &database{
		path: path, opened: info, clock: newClock(machineClock()),
		log: logs.Limited(o.Log).WithField("database", path),
	}
	d.clock.log = d.log
	if kind := networkFileSystem(filepath.Dir(path)); kind != "" {
		d.log.WithField("file_system", kind).
			Warn("database is on a network file system, where locks are unreliable and tasks can be lost: move it to a local disk, or use PostgreSQL")
	}
	texts := statements()
	d.writer = &writer{pool: newPool(connector(path, writing(noWait)), 1, texts), limit: busyLimit}
	d.reader = newPool(connector(path, reading()), readers, texts)
	d.writer.retryBusy, d.reader.retryBusy = d.retryBusy, d.retryBusy
	s := &Store{
		database:   d,
		inserter:   inserter{d},
		dispatcher: dispatcher{database: d},
		leaser:     leaser{d},
		claimer:    claimer{d},
		applier:    applier{d},
		shared:     roles.NewShared(named{d}, &d.ended),
		Desk:       desk.New(named{d}),
		fencer:     fencer{d},
		repairer:   repairer{d},
		keeper:     keeper{d},
		counters:   counters{roles.NewCounters(named{d})},
		gatekeeper: newGatekeeper(d),
		migrator:   migrator{d},
		transfers:  transfers{d},
		ownership:  ownership{d},
	}
	if err := s.prepare(ctx); err != nil {
		_ = s.close()
		return nil, err
	}
	return s, nil
}

// openOperation is the prefix of the errors of Open.
const openOperation = "open the database"

// prepare checks that the file is not the database of another program, turns on write-ahead logging, and checks the
// files beside the database.
func (s *Store) prepare(ctx context.Context) error {
	const operation = openOperation
	if err := s.checkBeside(ctx, s.reader.texts); err != nil {
		return s.translate(ctx, operation, err)
	}
	if err := s.read(ctx, operation, func(ctx context.Context, c *session) error { return s.checkOwner(ctx, c) }); err != nil {
		return err
	}
	err := s.writer.with(ctx, inTurn, func(c *session) error {
		return s.retryBusy(ctx, func() error {
			_, err := c.exec(context.WithoutCancel(ctx), "write_ahead")
			return err
		})
	})
	if err == nil {
		p := newPool(connector(s.path, reading()), 1, s.reader.texts)
		p.retryBusy = s.retryBusy
		err = s.openGuard(ctx, p)
	}
	if err == nil {
		err = s.checkFile(ctx)
	}
	return s.translate(ctx, operation, err)
}

// Path returns the path of the file, with symbolic links resolved.
func (s *Store) Path() string { return s.path }

// Close implements store.Store. It waits for calls in progress. If a file beside the database was deleted or changed,
// Close saves what it can, and leaves the connections open until the process ends.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		_ = s.checkFile(context.Background())
		if s.lost.Load() == nil {
			err = s.close()
			return
		}
		abandoned.Store(s.path, s.opened)
		s.reader.abandon()
		s.writer.abandon()
	})
	return err
}

// close closes all connections.
func (s *Store) close() error {
	err := errors.Join(s.reader.close(), s.writer.close())
	if s.guard != nil {
		err = errors.Join(err, s.guard.close())
	}
	return err
}

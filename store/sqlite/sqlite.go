// Package sqlite is the store in one file on this machine, through a driver that needs no C. It is for
// one binary, one file and no server.
//
// Each role of the contract is a type of its own in one .go file, and a Store is their sum. All of them embed the same
// database: see database.go. Their statements are in sql/, named after the operations.
//
// # What it promises
//
// What a call has stored survives the end of the process and of the machine: every transaction is on the
// disk when its call returns. Calls that write queue in the order they came, and share the file with other
// processes by asking for its lock every millisecond; a call gives up waiting when its context ends, and
// after [busyLimit] at the latest. A transaction that has begun is not broken off: it is short, or it is
// one step of many. Questions never wait for those who write.
//
// The clock is the machine's. When it was set, or the machine slept, leases that are over prove nothing for
// a while; see Fence.
//
// Only one process at a time should run tasks from a file; [Store.Own] says which. Others may look at it
// and add to it at any time.
//
// # What it keeps in memory
//
// The tasks and receipts that are being published. A process that ends in the middle of it has published
// them or not, and the next one publishes them again.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/roles"
)

// readers is how many questions are answered at once. SQLite keeps the processor busy rather than waiting.
const readers = 4

// Options configures a Store. Path is required.
type Options struct {
	// Path is the file; see ParseURL for how people name it.
	Path string
	// Create makes the file and its folder if they do not exist, for this user only. It makes no tables: see
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
	ticketer
	fencer
	patroller
	repairer
	keeper
	inspector
	migrator
	transfers
	ownership
}

var _ store.Store = (*Store)(nil)

// Open opens the file. It neither makes nor checks the tables, but refuses the database of another
// program: see MigrateUp and CheckSchema.
//
// The error wraps holdfast.ErrNotFound if there is no file and Create is false, holdfast.ErrInvalid if the path
// cannot be one of a database of holdfast, and holdfast.ErrUnavailable if trying again may help.
func Open(ctx context.Context, o Options) (*Store, error) {
	path, info, err := find(o.Path, o.Create)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	d := &database{
		path: path, opened: info, clock: newClock(machineClock()),
		log: logs.Limited(o.Log).WithField("database", path),
	}
	d.clock.log = d.log
	if kind := networkFileSystem(filepath.Dir(path)); kind != "" {
		d.log.Warnf("the database is on a network file system (%s), where the locks of SQLite do not work reliably and tasks can be lost; move it to a disk of this machine, or use PostgreSQL", kind)
	}
	texts := statements()
	d.writer = &writer{pool: newPool(connector(path, writing(impatient)), 1, texts), limit: busyLimit}
	d.reader = newPool(connector(path, reading()), readers, texts)
	d.writer.patiently, d.reader.patiently = d.patiently, d.patiently
	s := &Store{
		database:   d,
		inserter:   inserter{d},
		dispatcher: dispatcher{database: d},
		leaser:     leaser{d},
		claimer:    claimer{d},
		applier:    applier{d},
		ticketer:   roles.NewTickets(named{d}),
		fencer:     fencer{d},
		patroller:  roles.NewPatrol(named{d}),
		repairer:   repairer{d},
		keeper:     keeper{d},
		inspector:  roles.NewDesk(named{d}, choose),
		migrator:   migrator{d},
		transfers:  transfers{d},
		ownership:  ownership{d},
	}
	if err := s.prepare(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// prepare looks whose file it is, and only then has it written ahead.
func (s *Store) prepare(ctx context.Context) error {
	const operation = "open the database"
	if err := s.read(ctx, operation, func(ctx context.Context, c *session) error { return s.checkOwner(ctx, c) }); err != nil {
		return err
	}
	err := s.writer.with(ctx, func(c *session) error {
		return s.patiently(ctx, func() error {
			_, err := c.exec(context.WithoutCancel(ctx), "write_ahead")
			return err
		})
	})
	return s.translate(ctx, operation, err)
}

// Path returns the path of the file, with symbolic links resolved.
func (s *Store) Path() string { return s.path }

// Close implements store.Store. It waits for calls that are under way.
func (s *Store) Close() error {
	return errors.Join(s.reader.close(), s.writer.close())
}

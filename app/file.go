package app

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// file is the database file of the embedded backend. One process serves it, with the broker in its memory. Other
// processes communicate with that process only through the file.
type file struct {
	store   *sqlite.Store
	serving atomic.Bool // this process serves the file
	stuck   atomic.Bool // the janitor did not stop and may still use the file, so this process must keep the lock
}

// serve acquires the lock of the file, so that this process serves it. It returns an ErrConflict that names the other
// process if another one serves the file, and an ErrInvalid if the configuration lacks a role.
func (f *file) serve(cfg configs.Config) (release func(context.Context) error, err error) {
	if !cfg.HasRole(configs.RoleWorker) || !cfg.HasRole(configs.RoleJanitor) {
		return nil, holdfast.WithHint(fmt.Errorf("%w: one process does all the work on a file, so it needs the roles worker and janitor", holdfast.ErrInvalid),
			holdfast.Hint{Kind: holdfast.HintAllRoles})
	}
	unlock, err := f.store.Own()
	if err != nil {
		return nil, err
	}
	f.serving.Store(true)
	return func(context.Context) error {
		if f.stuck.Load() {
			return nil
		}
		f.serving.Store(false)
		return unlock()
	}, nil
}

// served returns an ErrUnavailable if no process serves the file.
func (f *file) served() error {
	if f.serving.Load() {
		return nil
	}
	served, err := f.store.Served()
	if err != nil || served {
		return err
	}
	return holdfast.WithHint(fmt.Errorf("%w: no process serves %s now", holdfast.ErrUnavailable, f.store.Path()),
		holdfast.Hint{Kind: holdfast.HintServe})
}

// inserter returns an Inserter for producers. A producer in a process that does not serve the file has no broker. So
// the inserter stores its tasks without a grace, and the serving process publishes their tickets at once.
func (f *file) inserter() store.Inserter { return &fileInserter{f.store, f} }

type fileInserter struct {
	store.Inserter
	file *file
}

// Insert implements store.Inserter.
func (e *fileInserter) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if !e.file.serving.Load() {
		grace = 0
	}
	return e.Inserter.Insert(ctx, tasks, grace)
}

// InsertTx implements store.Inserter. If this process does not serve the file, the result has no outbox entries,
// because the producer cannot publish their tickets.
func (e *fileInserter) InsertTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if e.file.serving.Load() {
		return e.Inserter.InsertTx(ctx, tx, tasks, grace)
	}
	inserted, err := e.Inserter.InsertTx(ctx, tx, tasks, 0)
	inserted.Entries = nil
	return inserted, err
}

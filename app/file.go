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

// file is the embedded default: one process serves it, with the broker in its own memory,
// and others reach that process through the file alone.
type file struct {
	store *sqlite.Store
	own   atomic.Bool // this process serves it
	stuck atomic.Bool // something that works on it did not stop: nobody else may serve it before this process ends
}

// serve makes this process the one that serves the file. An ErrConflict names the one that does.
func (f *file) serve(cfg configs.Config) (release func(context.Context) error, err error) {
	if !cfg.HasRole(configs.RoleWorker) || !cfg.HasRole(configs.RoleJanitor) {
		return nil, holdfast.WithHint(fmt.Errorf("%w: one process does all the work on a file, so it needs all roles", holdfast.ErrInvalid),
			holdfast.Hint{Kind: holdfast.HintAllRoles})
	}
	unlock, err := f.store.Own()
	if err != nil {
		return nil, err
	}
	f.own.Store(true)
	return func(context.Context) error {
		if f.stuck.Load() {
			return nil
		}
		f.own.Store(false)
		return unlock()
	}, nil
}

// served returns an ErrUnavailable if no process serves the file now.
func (f *file) served() error {
	if f.own.Load() {
		return nil
	}
	served, err := f.store.Served()
	if err != nil || served {
		return err
	}
	return holdfast.WithHint(fmt.Errorf("%w: no process serves %s now", holdfast.ErrUnavailable, f.store.Path()),
		holdfast.Hint{Kind: holdfast.HintServe})
}

// inserter stores tasks so that whoever serves the file publishes them without delay: from any other
// process there is no broker to publish to, hence no reason to wait for the producer to do so.
func (f *file) inserter() store.Inserter { return &elsewhere{f.store, f} }

type elsewhere struct {
	store.Inserter
	file *file
}

// Insert implements store.Inserter.
func (e *elsewhere) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if !e.file.own.Load() {
		grace = 0
	}
	return e.Inserter.Insert(ctx, tasks, grace)
}

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// MoveOptions says from where to where tasks are carried.
type MoveOptions struct {
	From string // URL of a file: sqlite:/path
	To   string // URL of a server: postgres://...
	// Config has everything else: the schema on the server, and the policies of the types. Its own
	// database and broker play no part.
	Config  configs.Config
	Into    store.Into
	Migrate bool // bring the server's schema up to date first
	Log     logrus.FieldLogger
	// Progress, if set, is told how many tasks have been copied.
	Progress func(done, total int64)
}

// source and target are the configurations of the two ends.
func (o MoveOptions) source() configs.Config {
	cfg := o.Config
	cfg.Database.URL, cfg.Database.DirectURL = o.From, ""
	return cfg
}

func (o MoveOptions) target() configs.Config {
	cfg := o.Config
	cfg.Database.URL, cfg.Database.DirectURL = o.To, ""
	return cfg
}

// MoveAway carries every task of a file to a server; see Mover. The error is an ErrInvalid if the URLs do not
// fit, an ErrNotFound if there is no file or nothing in it to carry, an ErrConflict if a process serves it, a
// store.ErrSchema if the server's schema is not up to date.
func MoveAway(ctx context.Context, o MoveOptions) (Moved, error) {
	var moved Moved
	err := withMover(ctx, o, func(m *Mover) error {
		var err error
		moved, err = m.Run(ctx)
		return err
	})
	return moved, err
}

// MoveBack takes back what MoveAway has begun and not finished; it reports whether there was anything.
func MoveBack(ctx context.Context, o MoveOptions) (bool, error) {
	undone := false
	err := withMover(ctx, o, func(m *Mover) error {
		var err error
		undone, err = m.Undo(ctx)
		return err
	})
	return undone, err
}

// MoveRelease lets the tasks of a file be changed again whose target is lost; see Release. It uses o.From alone.
func MoveRelease(ctx context.Context, o MoveOptions) (store.Export, error) {
	var mark store.Export
	if err := chooseSource(o.source(), o.Log); err != nil {
		return mark, err
	}
	err := withSource(ctx, o, func(source *Backend) error {
		var err error
		mark, err = Release(ctx, source.file.store)
		return err
	})
	return mark, err
}

// MoveAbort aborts every import of a server that is not committed, because the files they come from are lost, and
// returns those it has aborted. It uses o.To alone.
func MoveAbort(ctx context.Context, o MoveOptions) (aborted []store.Import, err error) {
	if err := chooseTarget(o.target(), o.Log); err != nil {
		return nil, err
	}
	b, err := openTarget(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	target := b.Store.(Target)
	imports, err := target.OpenImports(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range imports {
		if err := target.AbortImport(ctx, i.Transfer); err != nil {
			return aborted, err
		}
		aborted = append(aborted, i)
	}
	return aborted, nil
}

// withMover opens both ends, and keeps everybody else from serving the file meanwhile.
func withMover(ctx context.Context, o MoveOptions, use func(*Mover) error) error {
	if err := errors.Join(chooseSource(o.source(), o.Log), chooseTarget(o.target(), o.Log)); err != nil {
		return err
	}
	return withSource(ctx, o, func(source *Backend) (err error) {
		file := source.file.store
		mark, err := file.Export(ctx)
		if err != nil {
			return err
		}
		target, err := openTarget(ctx, o)
		if err != nil && mark.Transfer != "" {
			err = fmt.Errorf("%w; the tasks of %s stay blocked meanwhile; %s", err, mark.From, targetLost(file.Path()))
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, target.Close()) }()
		return use(&Mover{
			Source: file, Target: target.Store.(Target),
			From: file.Path(), To: fmt.Sprintf("%s (schema %s)", configs.RedactURL(o.To), o.Config.Database.Schema),
			Into: o.Into, Settings: o.Config.Settings(), Progress: o.Progress,
		})
	})
}

// withSource opens the file and keeps everybody else from serving it. Only then its tables are brought up to date.
func withSource(ctx context.Context, o MoveOptions, use func(*Backend) error) (err error) {
	source, err := openStore(ctx, o.source(), o.Log, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	migrations, err := source.Store.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	if !migrations[0].Applied {
		return fmt.Errorf("%w: there is nothing to carry: %s has no tables yet", holdfast.ErrNotFound, source.file.store.Path())
	}
	unlock, err := source.file.store.Own()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := source.migrate(ctx); err != nil {
		return err
	}
	return use(source)
}

func openTarget(ctx context.Context, o MoveOptions) (*Backend, error) {
	target, err := openStore(ctx, o.target(), o.Log, false)
	if err != nil {
		return nil, err
	}
	if o.Migrate {
		_, err = target.migrate(ctx)
	} else if err = target.Store.CheckSchema(ctx); errors.Is(err, store.ErrSchema) {
		err = fmt.Errorf("%w with DATABASE_URL set to %s, or add --migrate", err, configs.RedactURL(o.To))
	}
	if err != nil {
		return nil, errors.Join(err, target.Close())
	}
	return target, nil
}

// Exported returns an ErrConflict that says where the tasks are, if they are in a file and were carried
// elsewhere, or are being carried.
func (b *Backend) Exported(ctx context.Context) error {
	if b.file == nil {
		return nil
	}
	return b.file.exported(ctx)
}

func (f *file) exported(ctx context.Context) error {
	mark, err := f.store.Export(ctx)
	if err == nil && mark.Transfer != "" {
		err = mark.Err()
	}
	return err
}

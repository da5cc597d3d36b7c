package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
)

// migrator is the role store.Migrations.
type migrator struct{ *database }

// checkOperation is the prefix of the errors of a check of the schema.
const checkOperation = "check the schema"

// CheckSchema implements store.Migrations. It returns an ErrInvalid for the database of another program.
func (s *migrator) CheckSchema(ctx context.Context) error {
	const operation = checkOperation
	err := s.read(ctx, operation, func(ctx context.Context, c *session) error { return s.checkOwner(ctx, c) })
	if err != nil {
		return err
	}
	applied, err := s.versions(ctx)
	if err != nil {
		return s.translate(ctx, operation, err)
	}
	return s.compare(operation, applied)
}

// compare returns an ErrSchema if this build cannot run on the newest applied version.
func (s *migrator) compare(operation string, applied []schema.Applied) error {
	if err := schema.SQLite.Compare(s.path, schema.Newest(applied)); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// MigrateUp implements store.Migrations. Concurrent calls wait for each other, also across processes. If no version is
// missing, MigrateUp only reads.
func (s *migrator) MigrateUp(ctx context.Context) ([]store.Migration, error) {
	applied, err := s.versions(ctx)
	if err != nil {
		return nil, s.translate(ctx, "migrate up", err)
	}
	if schema.SQLite.Complete(applied) {
		return nil, s.compare(checkOperation, applied)
	}
	var migrations []store.Migration
	err = s.exclusively(ctx, "migrate up", func(db *sql.DB, _ []schema.Applied) error {
		var err error
		migrations, err = schema.SQLite.Up(ctx, db, "")
		return err
	})
	return migrations, err
}

// MigrateDown implements store.Migrations.
func (s *migrator) MigrateDown(ctx context.Context) (store.Migration, error) {
	var migration store.Migration
	err := s.exclusively(ctx, "migrate down", func(db *sql.DB, applied []schema.Applied) error {
		if len(applied) == 0 {
			return fmt.Errorf("%w: no migration is applied to %s", holdfast.ErrNotFound, s.path)
		}
		var err error
		migration, err = schema.SQLite.Down(ctx, db, "")
		return err
	})
	return migration, err
}

// exclusively runs f while no other process migrates this file. It runs f only if the file is a database of Holdfast
// and not ahead of this build.
func (s *migrator) exclusively(ctx context.Context, operation string, f func(*sql.DB, []schema.Applied) error) (err error) {
	if err := s.checkFile(ctx); err != nil {
		return s.translate(ctx, operation, err)
	}
	unlock, err := s.lockMigrations(ctx, s.path+".migrate.lock")
	if err != nil {
		return s.translate(ctx, operation, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := s.read(ctx, operation, func(ctx context.Context, c *session) error { return s.checkOwner(ctx, c) }); err != nil {
		return err
	}
	applied, err := s.versions(ctx)
	if err != nil {
		return s.translate(ctx, operation, err)
	}
	if err := schema.SQLite.Ahead(s.path, schema.Newest(applied)); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	db := sql.OpenDB(connector(s.path, writing(lockWait))) // these connections let SQLite wait for locks
	defer func() { err = errors.Join(err, db.Close()) }()
	if err = f(db, applied); err == nil {
		err = s.checkNames(ctx)
	}
	return s.translate(ctx, operation, err)
}

// lockMigrations creates the lock file and waits for its lock. unlock deletes the file. If lockMigrations has locked an
// already deleted file, it tries again.
func (s *migrator) lockMigrations(ctx context.Context, path string) (unlock func() error, err error) {
	for {
		if err := s.shareWithOwner(path); err != nil {
			return nil, fileError(path, err)
		}
		lock := flock.New(path, flock.SetPermissions(0o600))
		if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), lock.Close())
		}
		locked, err := lock.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read the state of %s: %w", path, err), lock.Close())
		}
		if existing, err := os.Stat(path); err == nil && os.SameFile(locked, existing) {
			return func() error {
				_ = os.Remove(path) // some systems cannot delete an open file; the file is harmless
				return lock.Close()
			}, nil
		}
		if err := lock.Close(); err != nil {
			return nil, fmt.Errorf("unlock %s: %w", path, err)
		}
	}
}

// MigrationStatus implements store.Migrations.
func (s *migrator) MigrationStatus(ctx context.Context) ([]store.Migration, error) {
	applied, err := s.versions(ctx)
	if err != nil {
		return nil, s.translate(ctx, "read the schema's version", err)
	}
	return schema.SQLite.Status(applied), nil
}

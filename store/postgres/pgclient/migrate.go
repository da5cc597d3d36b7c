package pgclient

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
)

const (
	// lockTimeout is how long a migration waits for a lock. During the wait, statements of the workers wait behind it.
	// A statement that locks several tables may wait that long for each.
	lockTimeout = 100 * time.Millisecond
	// lockPause is how long a migration leaves the tables to the workers before it tries again.
	lockPause = time.Second
	// blockedEvery is the time between two logs of a migration that waits.
	blockedEvery = 10 * time.Second
	// turnPause is the pause between two checks whether another process is still migrating.
	turnPause = 50 * time.Millisecond
)

// Migrator creates and changes the tables of a schema. It implements the part of store.Migrations that needs no
// statements of the store. It is safe for concurrent use: migrations of one schema wait for each other, in one process
// and in many.
type Migrator struct {
	db        *DB
	dropped   func()
	migrating chan struct{} // holds one token while this process migrates
}

// NewMigrator returns the Migrator for the schema of d. The Migrator calls dropped after it has dropped tables.
func NewMigrator(d *DB, dropped func()) *Migrator {
	return &Migrator{db: d, dropped: dropped, migrating: make(chan struct{}, 1)}
}

// CheckSchema implements store.Migrations.
func (m *Migrator) CheckSchema(ctx context.Context) error {
	const operation = "check the schema"
	applied, err := m.versions(ctx)
	if err != nil {
		return Translate(ctx, operation, err)
	}
	return m.compare(operation, schema.Newest(applied))
}

// compare returns an ErrSchema if this build cannot run on the version.
func (m *Migrator) compare(operation string, version int64) error {
	if err := schema.Postgres.Compare(fmt.Sprintf("schema %q", m.db.schema), version); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// versions returns the applied versions. It returns none if the schema does not exist.
func (m *Migrator) versions(ctx context.Context) ([]schema.Applied, error) {
	var rows []struct {
		Number    int64
		AppliedAt time.Time `db:"applied_at"`
	}
	err := all(ctx, m.db.Main, &rows, m.db.own("schema_versions"))
	if missing(err) {
		return nil, nil
	}
	applied := make([]schema.Applied, len(rows))
	for i, row := range rows {
		applied[i] = schema.Applied{Number: row.Number, At: row.AppliedAt}
	}
	return applied, err
}

// MigrateUp implements store.Migrations. Concurrent calls wait for each other. If no version is missing, it needs only
// the right to read.
func (m *Migrator) MigrateUp(ctx context.Context) ([]store.Migration, error) {
	const operation = "migrate up"
	applied, err := m.versions(ctx)
	if err != nil {
		return nil, Translate(ctx, operation, err)
	}
	if schema.Postgres.Complete(applied) {
		return nil, m.compare(operation, schema.Newest(applied))
	}
	var migrations []store.Migration
	err = m.alone(ctx, operation, func() error {
		if err := m.createSchema(ctx); err != nil {
			return err
		}
		applied, err := schema.Postgres.Up(ctx, m.db.Unlimited.DB, m.db.schema)
		migrations = append(migrations, applied...)
		return owned(err)
	})
	return migrations, err
}

// MigrateDown implements store.Migrations.
func (m *Migrator) MigrateDown(ctx context.Context) (store.Migration, error) {
	const operation = "migrate down"
	var migration store.Migration
	err := m.alone(ctx, operation, func() error {
		applied, err := m.versions(ctx)
		if err == nil && len(applied) == 0 {
			err = fmt.Errorf("%w: no migration is applied to schema %q", holdfast.ErrNotFound, m.db.schema)
		}
		if err != nil {
			return err
		}
		migration, err = schema.Postgres.Down(ctx, m.db.Unlimited.DB, m.db.schema)
		return owned(err)
	})
	if err == nil {
		m.dropped()
	}
	return migration, err
}

// DropSchema deletes the schema with all its contents, even tables that Holdfast did not create. It returns no error if
// the schema does not exist. While it runs, no process may use the schema.
func (m *Migrator) DropSchema(ctx context.Context) error {
	err := m.alone(ctx, "drop the schema", func() error {
		_, err := exec(ctx, m.db.Unlimited, m.db.own("schema_drop"))
		return err
	})
	if err == nil {
		m.dropped()
	}
	return err
}

// createSchema creates the schema unless it exists. It checks first, because "if not exists" needs the right to create
// schemas even if the schema exists.
func (m *Migrator) createSchema(ctx context.Context) error {
	state, err := one[struct {
		Present bool
		Grant   string
	}](ctx, m.db.Unlimited, m.db.own("schema_state"), m.db.schema)
	if err != nil || state.Present {
		return err
	}
	_, err = exec(ctx, m.db.Unlimited, m.db.own("schema_create"))
	if pq.As(err, pqerror.InsufficientPrivilege) != nil {
		return holdfast.WithHint(err, holdfast.Advice("the owner of the database permits it with: "+state.Grant))
	}
	return err
}

// owned adds a hint to an error about missing privileges. The hint says which role may migrate.
func owned(err error) error {
	if pq.As(err, pqerror.InsufficientPrivilege) == nil {
		return err
	}
	return holdfast.WithHint(err, holdfast.Advice("migrate as the role that owns the schema and its tables"))
}

// alone runs f while no other process migrates this schema, and only if the schema is not ahead of this build. If f
// fails because another session holds a lock on a table, alone runs f again until it succeeds.
func (m *Migrator) alone(ctx context.Context, operation string, f func() error) error {
	// Callers in this process wait here. If they waited for the lock of the database, they would occupy the connections
	// that the migrating call needs.
	select {
	case m.migrating <- struct{}{}:
		defer func() { <-m.migrating }()
	case <-ctx.Done():
		return Translate(ctx, operation, ctx.Err())
	}
	// A transaction holds the lock, because a pooler may lend a session for only one transaction.
	lock, err := m.db.Unlimited.BeginTxx(ctx, nil)
	if err != nil {
		return Translate(ctx, operation, err)
	}
	defer func() { _ = lock.Rollback() }()
	if err := m.lockMigrations(ctx, lock); err != nil {
		return Translate(ctx, operation, err)
	}
	applied, err := m.versions(ctx)
	if err != nil {
		return Translate(ctx, operation, err)
	}
	if err := schema.Postgres.Ahead(fmt.Sprintf("schema %q", m.db.schema), schema.Newest(applied)); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	var warned time.Time
	for {
		err := f()
		if pq.As(err, pqerror.LockNotAvailable) == nil {
			return Translate(ctx, operation, err)
		}
		if time.Since(warned) > blockedEvery {
			m.warnBlocked(ctx, operation)
			warned = time.Now()
		}
		if backoff.Sleep(ctx, lockPause) != nil {
			return Translate(ctx, operation, err)
		}
	}
}

// lockMigrations returns when the transaction has the lock. It uses many short statements: while a statement waits,
// VACUUM cannot remove row versions that died since the start of the statement.
func (m *Migrator) lockMigrations(ctx context.Context, tx *sqlx.Tx) error {
	for {
		row, err := one[struct{ Locked bool }](ctx, tx, m.db.own("migrate_lock"), m.lockID())
		if err != nil || row.Locked {
			return err
		}
		if err := backoff.Sleep(ctx, turnPause); err != nil {
			return err
		}
	}
}

// warnBlocked logs the oldest other transaction that holds a lock on a table of the schema.
func (m *Migrator) warnBlocked(ctx context.Context, operation string) {
	log := m.db.log.WithField("operation", operation)
	row, err := one[struct {
		PID         int64
		Application string
		Seconds     int64
	}](ctx, m.db.Unlimited, m.db.own("migrate_blockers"), m.db.schema)
	if err == nil {
		log = log.WithFields(logrus.Fields{"pid": row.PID, "application": row.Application, "transaction_seconds": row.Seconds})
	}
	log.Warn("another session holds a lock on a table of the schema, trying again until its transaction ends")
}

// lockID is the key of the advisory lock that belongs to the schema.
func (m *Migrator) lockID() int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("holdfast migrations " + m.db.schema))
	return int64(hash.Sum64())
}

// MigrationStatus implements store.Migrations.
func (m *Migrator) MigrationStatus(ctx context.Context) ([]store.Migration, error) {
	applied, err := m.versions(ctx)
	if err != nil {
		return nil, Translate(ctx, "read the schema's version", err)
	}
	return schema.Postgres.Status(applied), nil
}

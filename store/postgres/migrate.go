package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"strings"
	"time"

	"github.com/lib/pq"
	"github.com/pressly/goose/v3"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
)

// versionTable is where goose keeps the applied versions, inside the schema.
const versionTable = "migrations"

// CheckSchema implements store.Migrations.
func (s *Store) CheckSchema(ctx context.Context) error {
	const operation = "check the schema"
	applied, err := s.versions(ctx)
	if err != nil {
		return translate(ctx, operation, err)
	}
	return s.compare(operation, newest(applied))
}

// compare reports an ErrSchema if version is not the one this build needs.
func (s *Store) compare(operation string, version int64) error {
	switch latest := schema.Latest(); {
	case version < latest:
		return fmt.Errorf("%s: %w: schema %q is at version %d, this build needs %d; %s", operation, store.ErrSchema, s.schema, version, latest, migrateHint)
	case version > latest:
		return fmt.Errorf("%s: %w: schema %q is at version %d, this build knows %d; use a newer holdfast", operation, store.ErrSchema, s.schema, version, latest)
	}
	return nil
}

type versionRow struct {
	Number    int64
	AppliedAt time.Time `db:"applied_at"`
}

// versions returns the versions that are applied, none if there is no schema.
func (s *Store) versions(ctx context.Context) ([]versionRow, error) {
	var rows []versionRow
	err := s.all(ctx, s.db, &rows, "schema_versions")
	if missing(err) {
		return nil, nil
	}
	return rows, err
}

func newest(applied []versionRow) int64 {
	version := int64(0)
	for _, row := range applied {
		version = max(version, row.Number)
	}
	return version
}

// MigrateUp implements store.Migrations. Concurrent calls wait for each other.
func (s *Store) MigrateUp(ctx context.Context) ([]store.Migration, error) {
	const operation = "migrate up"
	var results []*goose.MigrationResult
	err := s.alone(ctx, operation, func(conn *sql.Conn, provider *goose.Provider) error {
		if _, err := conn.ExecContext(ctx, "create schema if not exists "+pq.QuoteIdentifier(s.schema)); err != nil {
			return err
		}
		var err error
		results, err = provider.Up(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return migrationsOf(results), nil
}

// MigrateDown implements store.Migrations.
func (s *Store) MigrateDown(ctx context.Context) (store.Migration, error) {
	const operation = "migrate down"
	var result *goose.MigrationResult
	err := s.alone(ctx, operation, func(_ *sql.Conn, provider *goose.Provider) error {
		applied, err := s.versions(ctx)
		if err == nil && len(applied) == 0 {
			err = fmt.Errorf("%w: no migration is applied to schema %q", holdfast.ErrNotFound, s.schema)
		}
		if err != nil {
			return err
		}
		result, err = provider.Down(ctx)
		return err
	})
	if err != nil {
		return store.Migration{}, err
	}
	s.lanes.Clear()
	migration := migrationsOf([]*goose.MigrationResult{result})[0]
	migration.Applied, migration.AppliedAt = false, time.Time{}
	return migration, nil
}

// alone runs f while no other process migrates this schema, and only if it is not ahead of this build.
func (s *Store) alone(ctx context.Context, operation string, f func(*sql.Conn, *goose.Provider) error) error {
	provider, err := goose.NewProvider(goose.DialectPostgres, s.migrations.DB, schema.FS,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	// Callers in this process queue here: waiting for the lock they would take the connections that
	// the one who has it needs.
	select {
	case s.migrating <- struct{}{}:
		defer func() { <-s.migrating }()
	case <-ctx.Done():
		return translate(ctx, operation, ctx.Err())
	}
	conn, err := s.migrations.DB.Conn(ctx)
	if err != nil {
		return translate(ctx, operation, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "select pg_advisory_lock($1)", s.lockID()); err != nil {
		return translate(ctx, operation, err)
	}
	// The connection must not go back to the pool with the lock; without an unlock it does not go back.
	defer func() {
		if _, err := conn.ExecContext(ctx, "select pg_advisory_unlock($1)", s.lockID()); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	applied, err := s.versions(ctx)
	if err != nil {
		return translate(ctx, operation, err)
	}
	if version := newest(applied); version > schema.Latest() {
		return s.compare(operation, version)
	}
	return translate(ctx, operation, f(conn, provider))
}

// lockID is the key of the advisory lock that belongs to the schema.
func (s *Store) lockID() int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("holdfast migrations " + s.schema))
	return int64(hash.Sum64())
}

func migrationsOf(results []*goose.MigrationResult) []store.Migration {
	migrations := make([]store.Migration, len(results))
	for i, result := range results {
		_, name, _ := strings.Cut(strings.TrimSuffix(path.Base(result.Source.Path), ".sql"), "_")
		migrations[i] = store.Migration{Version: result.Source.Version, Name: name, Applied: true, AppliedAt: time.Now().UTC()}
	}
	return migrations
}

// MigrationStatus implements store.Migrations.
func (s *Store) MigrationStatus(ctx context.Context) ([]store.Migration, error) {
	applied, err := s.versions(ctx)
	if err != nil {
		return nil, translate(ctx, "read the schema's version", err)
	}
	known := schema.Versions()
	status := make([]store.Migration, len(known))
	for i, version := range known {
		status[i] = store.Migration{Version: version.Number, Name: version.Name}
		for _, row := range applied {
			if row.Number == version.Number {
				status[i].Applied, status[i].AppliedAt = true, row.AppliedAt.UTC()
			}
		}
	}
	return status, nil
}

// Incarnation implements store.Migrations.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	var row struct{ Value string }
	err := s.do(ctx, "read the incarnation", func() error {
		var err error
		row, err = one[struct{ Value string }](ctx, s, s.db, "incarnation")
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("%w: the incarnation is missing; %s", store.ErrSchema, migrateHint)
		}
		return err
	})
	return row.Value, err
}

package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// VersionTable is the table in which goose records the applied versions.
const VersionTable = "migrations"

// Outdated returns a store.ErrSchema with the reason why the schema is older than this build needs. Its hint is to
// migrate.
func Outdated(format string, args ...any) error {
	err := fmt.Errorf("%w: %w", store.ErrSchema, fmt.Errorf(format, args...))
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintMigrate})
}

// Applied is one version found in a database.
type Applied struct {
	Number int64
	At     time.Time
}

// Newest returns the newest version of a list, or 0 if the list is empty.
func Newest(applied []Applied) int64 {
	version := int64(0)
	for _, a := range applied {
		version = max(version, a.Number)
	}
	return version
}

// Complete reports whether every version that this build knows is applied.
func (d Dialect) Complete(applied []Applied) bool {
	return !slices.ContainsFunc(d.Status(applied), func(m store.Migration) bool { return !m.Applied })
}

// Compare returns a store.ErrSchema if this build cannot run on a schema of the given version. A build runs on the
// version that it needs and on the next one. where is the name of the schema or file in the error.
func (d Dialect) Compare(where string, version int64) error {
	switch latest := d.Latest(); {
	case version < latest:
		return Outdated("%s is at version %d, this build needs %d", where, version, latest)
	case version > latest+1:
		return d.Ahead(where, version)
	}
	return nil
}

// Ahead returns a store.ErrSchema if the version is newer than this build knows. Such a build must not migrate.
func (d Dialect) Ahead(where string, version int64) error {
	if version <= d.Latest() {
		return nil
	}
	err := fmt.Errorf("%w: %s is at version %d, this build knows %d", store.ErrSchema, where, version, d.Latest())
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintUpgrade})
}

// Status lists every version that this build knows, and whether it is applied.
func (d Dialect) Status(applied []Applied) []store.Migration {
	known := d.Versions()
	status := make([]store.Migration, len(known))
	for i, version := range known {
		status[i] = store.Migration{Version: version.Number, Name: version.Name}
		for _, a := range applied {
			if a.Number == version.Number {
				status[i].Applied, status[i].AppliedAt = true, a.At.UTC()
			}
		}
	}
	return status
}

// Up applies the missing versions to a schema of the database and returns them. An empty schema means that the database
// has no schemas. Transactions of db must have the schema as their search_path. The caller must prevent other processes
// from migrating meanwhile. If one version cannot be applied, Up returns the error and the versions before it, which
// remain applied.
func (d Dialect) Up(ctx context.Context, db *sql.DB, schema string) ([]store.Migration, error) {
	provider, err := d.provider(db, schema)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	migrations := make([]store.Migration, len(results))
	for i, result := range results {
		migrations[i] = migrationOf(result)
		migrations[i].Applied, migrations[i].AppliedAt = true, time.Now().UTC()
	}
	return migrations, err
}

// Down reverts the newest applied version and returns it; schema is as for Up. At least one version must be applied,
// and the caller must prevent other processes from migrating meanwhile.
func (d Dialect) Down(ctx context.Context, db *sql.DB, schema string) (store.Migration, error) {
	provider, err := d.provider(db, schema)
	if err != nil {
		return store.Migration{}, err
	}
	result, err := provider.Down(ctx)
	if err != nil {
		return store.Migration{}, err
	}
	if result == nil {
		return store.Migration{}, errors.New("goose reverted no version")
	}
	return migrationOf(result), nil
}

func (d Dialect) provider(db *sql.DB, schema string) (*goose.Provider, error) {
	global := goose.WithDisableGlobalRegistry(true)
	if schema == "" {
		return goose.NewProvider(d.dialect, db, d.FS(), goose.WithTableName(VersionTable), global)
	}
	versions, err := database.NewStore(d.dialect, fmt.Sprintf("%q.%s", schema, VersionTable))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectCustom, db, d.FS(), goose.WithStore(qualified{versions, schema}), global)
}

// qualified is a table of versions whose statements name its schema, because outside a transaction a session may have
// any search_path.
type qualified struct {
	database.Store
	schema string
}

// TableExists implements database.StoreExtender, which goose requires.
func (q qualified) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var exists bool
	err := db.QueryRowContext(ctx, "select exists (select from pg_tables where schemaname = $1 and tablename = $2)", q.schema, VersionTable).Scan(&exists)
	return exists, err
}

func migrationOf(result *goose.MigrationResult) store.Migration {
	_, name, _ := strings.Cut(strings.TrimSuffix(path.Base(result.Source.Path), ".sql"), "_")
	return store.Migration{Version: result.Source.Version, Name: name}
}

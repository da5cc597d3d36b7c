package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var _ store.Importer = (*Store)(nil)

type importRow struct {
	ID          int64
	Source      string
	Transfer    string
	Origin      string
	Shift       int64
	Through     holdfast.TaskID
	Tasks       int64
	BegunAt     time.Time    `db:"begun_at"`
	CommittedAt sql.NullTime `db:"committed_at"`
}

func (r importRow) imported() store.Import {
	return store.Import{
		Source: r.Source, From: r.Origin, Transfer: r.Transfer, Shift: r.Shift, Through: r.Through, Tasks: r.Tasks,
		BegunAt: r.BegunAt.UTC(), CommittedAt: moment(r.CommittedAt),
	}
}

// Import implements store.Importer.
func (s *Store) Import(ctx context.Context, transfer string) (store.Import, error) {
	var row importRow
	err := s.do(ctx, "look for an import", func() error {
		var err error
		row, err = one[importRow](ctx, s, s.db, "import", transfer)
		return unknown(err, transfer)
	})
	if err != nil {
		return store.Import{}, err
	}
	return row.imported(), nil
}

// OpenImports implements store.Importer.
func (s *Store) OpenImports(ctx context.Context) ([]store.Import, error) {
	var imports []store.Import
	err := s.do(ctx, "list imports", func() error {
		return s.patiently(ctx, func(tx *sqlx.Tx) error { // it counts what may be millions
			var rows []importRow
			err := s.all(ctx, tx, &rows, "import_open")
			imports = make([]store.Import, len(rows))
			for i, row := range rows {
				imports[i] = row.imported()
			}
			return err
		})
	})
	return imports, err
}

// lockImport makes the caller the only one who works on an import, until its transaction ends.
func (s *Store) lockImport(ctx context.Context, tx store.Tx, transfer string) (importRow, error) {
	row, err := one[importRow](ctx, s, tx, "import_lock", transfer)
	return row, unknown(err, transfer)
}

// unknown explains the error of a statement that found no import.
func unknown(err error, transfer string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: there is no import for the transfer %s here", holdfast.ErrNotFound, transfer)
	}
	return err
}

// importsVersion is the version of the schema that has made the tables of imports.
const importsVersion = 2

// noImports returns an ErrConflict if an import is on record.
func (s *Store) noImports(ctx context.Context) error {
	row, err := one[importRow](ctx, s, s.db, "import_record")
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case row.CommittedAt.Valid:
		return fmt.Errorf("%w: schema %q holds the record that the tasks of %s were carried here at %s, and without it they could be carried here twice; if nothing in the schema is needed any more, drop the schema instead",
			holdfast.ErrConflict, s.schema, row.Origin, row.CommittedAt.Time.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%w: the tasks of %s are being carried to schema %q since %s; finish that first, or take it back: holdfast migrate-backend --undo, with --source-lost if that file is lost",
		holdfast.ErrConflict, row.Origin, s.schema, row.BegunAt.UTC().Format(time.RFC3339))
}

// patiently runs f in a transaction that may take as long as it needs: a million tasks are imported
// at once, or none.
func (s *Store) patiently(ctx context.Context, f func(*sqlx.Tx) error) error {
	tx, err := s.migrations.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

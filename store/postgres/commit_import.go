package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// CommitImport implements store.Importer.
func (s *Store) CommitImport(ctx context.Context, transfer string) (store.Import, error) {
	const operation = "commit an import"
	var row importRow
	err := s.do(ctx, operation, func() error {
		if err := s.importLanes(ctx, transfer); err != nil {
			return err
		}
		return s.patiently(ctx, func(tx *sqlx.Tx) error {
			var err error
			if row, err = s.lockImport(ctx, tx, transfer); err != nil || row.CommittedAt.Valid {
				return err
			}
			if err := s.commitImport(ctx, tx, row); err != nil {
				return err
			}
			row, err = s.lockImport(ctx, tx, transfer)
			return err
		})
	})
	if pq.As(err, pqerror.UniqueViolation) != nil { // by a task that was inserted meanwhile
		clash := s.do(ctx, operation, func() error { return s.clashes(ctx, s.migrations, row) })
		if clash != nil {
			err = clash
		}
	}
	if err != nil {
		return store.Import{}, err
	}
	return row.imported(), nil
}

// importLanes stores the lanes of what is staged, before the transaction that commits it: whoever stores a task in one of
// them meanwhile would wait for its end.
func (s *Store) importLanes(ctx context.Context, transfer string) error {
	return s.patiently(ctx, func(tx *sqlx.Tx) error {
		row, err := s.lockImport(ctx, tx, transfer)
		if err != nil || row.CommittedAt.Valid {
			return err
		}
		_, err = s.exec(ctx, tx, "commit_import_lanes", row.ID)
		return err
	})
}

func (s *Store) commitImport(ctx context.Context, tx *sqlx.Tx, row importRow) error {
	if _, err := s.exec(ctx, tx, "commit_import_settings"); err != nil {
		return err
	}
	if err := s.clashes(ctx, tx, row); err != nil {
		return err
	}
	tasks, err := s.exec(ctx, tx, "commit_import_tasks", row.ID, row.Shift)
	if err != nil {
		return err
	}
	if _, err := s.exec(ctx, tx, "commit_import_attempts", row.ID, row.Shift); err != nil {
		return err
	}
	for _, name := range []string{"commit_import_emptied", "commit_import_emptied_tasks"} {
		if _, err := s.exec(ctx, tx, name, row.ID); err != nil {
			return err
		}
	}
	_, err = s.exec(ctx, tx, "commit_import", row.ID, tasks)
	return err
}

// clashes returns an ErrConflict that names unique keys which are taken, nil if none is.
func (s *Store) clashes(ctx context.Context, q store.Tx, row importRow) error {
	var taken []struct {
		Key      string
		Imported holdfast.TaskID
		Holder   holdfast.TaskID
	}
	if err := s.all(ctx, q, &taken, "commit_import_clashes", row.ID, row.Shift); err != nil || len(taken) == 0 {
		return err
	}
	var list strings.Builder
	for _, clash := range taken {
		fmt.Fprintf(&list, "; task %s has the unique key %.100q of task %s", clash.Holder, clash.Key, clash.Imported-holdfast.TaskID(row.Shift))
	}
	return fmt.Errorf("%w: unique keys of the tasks are taken%s", holdfast.ErrConflict, list.String())
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var _ store.Exporter = (*Store)(nil)

type exportRow struct {
	Transfer    string
	Origin      string
	Target      string
	Destination string
	BegunAt     int64 `db:"begun_at"`
	FinishedAt  int64 `db:"finished_at"`
}

func (r exportRow) export() store.Export {
	return store.Export{
		Transfer: r.Transfer, From: r.Origin, To: r.Target, Destination: r.Destination,
		BegunAt: moment(r.BegunAt), FinishedAt: moment(r.FinishedAt),
	}
}

// Export implements store.Exporter.
func (s *Store) Export(ctx context.Context) (store.Export, error) {
	var e store.Export
	err := s.read(ctx, "read where the tasks are", func(ctx context.Context, c *session) error {
		var err error
		e, err = readExport(ctx, c)
		return err
	})
	return e, err
}

func readExport(ctx context.Context, q querier) (store.Export, error) {
	row, err := one[exportRow](ctx, q, "export")
	if errors.Is(err, sql.ErrNoRows) {
		return store.Export{}, nil
	}
	return row.export(), err
}

// BeginExport implements store.Exporter.
func (s *Store) BeginExport(ctx context.Context, e store.Export) error {
	return s.write(ctx, "begin the export", func(ctx context.Context, tx *transaction) error {
		marked, err := readExport(ctx, tx)
		switch {
		case err != nil || marked.Transfer == e.Transfer:
			return err
		case marked.Transfer != "":
			return marked.Err()
		}
		running, err := one[struct{ N int64 }](ctx, tx, "begin_export_running")
		if err != nil {
			return err
		}
		if running.N > 0 {
			return fmt.Errorf("%w: %d tasks of %s are running; stop whatever works on them, then run this again", holdfast.ErrConflict, running.N, e.From)
		}
		if _, err := tx.exec(ctx, "begin_export", e.Transfer, e.From, e.To, e.Destination, tx.now); err != nil {
			return err
		}
		_, err = tx.exec(ctx, "begin_export_guard")
		return err
	})
}

// FinishExport implements store.Exporter.
func (s *Store) FinishExport(ctx context.Context, transfer string) error {
	return s.write(ctx, "finish the export", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "finish_export", transfer, tx.now)
		return err
	})
}

// CancelExport implements store.Exporter.
func (s *Store) CancelExport(ctx context.Context, transfer string) error {
	return s.write(ctx, "cancel the export", func(ctx context.Context, tx *transaction) error {
		marked, err := readExport(ctx, tx)
		switch {
		case err != nil || marked.Transfer == "":
			return err
		case marked.Transfer != transfer:
			return marked.Err()
		}
		if _, err := tx.exec(ctx, "cancel_export", transfer); err != nil {
			return err
		}
		_, err = tx.exec(ctx, "cancel_export_unguard")
		return err
	})
}

// exported explains the error of a statement that a trigger of sql/begin_export_guard.sql has refused; nil if err
// is another one.
func (s *Store) exported(ctx context.Context, err error) error {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok || failure.Code() != codes.SQLITE_CONSTRAINT_TRIGGER {
		return nil
	}
	marked, readErr := s.Export(context.WithoutCancel(ctx))
	switch {
	case readErr != nil:
		return readErr
	case marked.Transfer == "":
		return fmt.Errorf("%w: the tasks of %s came back this moment; try again", holdfast.ErrUnavailable, s.path)
	}
	return marked.Err()
}

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

// beginTries is how often BeginImport asks for the table, a few seconds each time and with as long a pause, in
// which those who queued behind it get on.
const beginTries = 8

// errOccupied says that there are tasks where there should be none.
var errOccupied = errors.New("there are tasks already")

// BeginImport implements store.Importer. It waits for the transactions that are inserting tasks to end, at most
// half a minute.
func (s *Store) BeginImport(ctx context.Context, i store.Import, last holdfast.TaskID, into store.Into) (store.Import, error) {
	return s.beginImport(ctx, i, int64(last), into, beginTries)
}

func (s *Store) beginImport(ctx context.Context, i store.Import, last int64, into store.Into, tries int) (store.Import, error) {
	const operation = "begin an import"
	for attempt := 1; ; attempt++ {
		var row importRow
		err := s.do(ctx, operation, func() error {
			return s.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				row, err = s.tryBeginImport(ctx, tx, i, last, into)
				return err
			})
		})
		switch {
		case err == nil:
			return row.imported(), nil
		case errors.Is(err, errOccupied):
			return store.Import{}, s.occupied(ctx, operation)
		case pq.As(err, pqerror.LockNotAvailable) == nil:
			return store.Import{}, err
		case attempt >= tries || backoff.Sleep(ctx, 2*time.Second) != nil:
			return store.Import{}, fmt.Errorf("%w; a transaction on %s.tasks has been open for long: look for it in pg_stat_activity (xact_start, pid), and end it", err, s.schema)
		}
	}
}

func (s *Store) tryBeginImport(ctx context.Context, tx *sqlx.Tx, i store.Import, last int64, into store.Into) (importRow, error) {
	known, err := one[importRow](ctx, s, tx, "begin_import_known", i.Transfer, i.Source)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil || known.Transfer == i.Transfer:
		return known, err
	case known.CommittedAt.Valid:
		return known, fmt.Errorf("%w: the tasks of %s were carried here at %s, and %s is a copy of it from before; what was in both would be here twice; carry it to another schema if it is meant to live on",
			holdfast.ErrConflict, known.Origin, known.CommittedAt.Time.UTC().Format(time.RFC3339), i.From)
	default:
		if _, err := s.exec(ctx, tx, "abort_import", known.ID); err != nil {
			return known, err
		}
	}
	if _, err := s.exec(ctx, tx, "begin_import_lock"); err != nil {
		return importRow{}, err
	}
	shift, given, err := s.shift(ctx, tx, i.Source, into)
	if err != nil {
		return importRow{}, err
	}
	if _, err := s.exec(ctx, tx, "begin_import_reserve", max(given, shift+last)); err != nil {
		return importRow{}, err
	}
	if _, err := s.exec(ctx, tx, "begin_import", i.Source, i.Transfer, i.From, shift); err != nil {
		return importRow{}, err
	}
	return one[importRow](ctx, s, tx, "import", i.Transfer)
}

// shift decides what is added to the ids, and returns the highest that was ever given out. The table is locked.
func (s *Store) shift(ctx context.Context, tx store.Tx, source string, into store.Into) (shift, given int64, err error) {
	others, err := one[struct {
		Tasks    bool
		UnderWay string `db:"under_way"`
	}](ctx, s, tx, "begin_import_others", source)
	if err != nil {
		return 0, 0, err
	}
	row, err := one[struct{ Given int64 }](ctx, s, tx, "begin_import_given")
	switch {
	case err != nil:
		return 0, 0, err
	case !others.Tasks && others.UnderWay == "":
		return 0, row.Given, nil
	case into == store.IntoExisting:
		return row.Given, row.Given, nil
	case others.Tasks:
		return 0, 0, errOccupied
	}
	return 0, 0, fmt.Errorf("%w: the tasks of %s are being carried to schema %q; finish that first, or take it back with --undo; if that file is lost, run: holdfast migrate-backend --to URL --undo --source-lost; or add --into-existing",
		holdfast.ErrConflict, others.UnderWay, s.schema)
}

// occupied counts what is in the way, which would take too long while the table is locked.
func (s *Store) occupied(ctx context.Context, operation string) error {
	counts, err := s.Count(ctx, store.Filter{})
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", operation, store.Occupied(fmt.Sprintf("schema %q", s.schema), store.TransferCounts{States: counts}.Tasks()))
}

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Undo takes back what Run has begun: the target forgets what was staged, and the tasks of the source can be
// changed again. It reports false if the source is not marked, so that there was nothing to do. ErrConflict if the
// source says that the tasks are at the target, whatever that says; if the target has committed the import; and if the
// source is marked for another target.
func (m *Mover) Undo(ctx context.Context) (bool, error) {
	mark, err := m.Source.Export(ctx)
	switch {
	case err != nil || mark.Transfer == "":
		return false, err
	case mark.Finished():
		return false, fmt.Errorf("%w; --undo takes back only what is not finished; %s", mark.Err(), targetLost(m.From))
	}
	incarnation, err := m.Target.Incarnation(ctx)
	if err != nil {
		return false, err
	}
	if mark.Destination != incarnation {
		return false, m.otherDatabase(mark)
	}
	if err := m.Target.AbortImport(ctx, mark.Transfer); err != nil {
		if errors.Is(err, holdfast.ErrConflict) {
			err = fmt.Errorf("%w; run this again without --undo to finish", err)
		}
		return false, err
	}
	return true, m.Source.CancelExport(ctx, mark.Transfer)
}

// Release takes the mark off a source, finished or not, without asking the target, and returns the mark; its zero
// value if there is none. The caller answers for it that nobody works, or ever will work, on the tasks there.
func Release(ctx context.Context, source store.Exporter) (store.Export, error) {
	mark, err := source.Export(ctx)
	if err != nil || mark.Transfer == "" {
		return mark, err
	}
	return mark, source.CancelExport(ctx, mark.Transfer)
}

// targetLost is the way out when the target cannot be asked any more.
func targetLost(from string) string {
	return fmt.Sprintf("if that database is gone for good or never got the tasks (look there for them first, or they would run twice), unblock those of the file: holdfast migrate-backend --from sqlite:%s --undo --target-lost", from)
}

// otherDatabase says that the mark is for a database with another identity.
func (m *Mover) otherDatabase(mark store.Export) error {
	return fmt.Errorf("%w: the tasks of %s are marked since %s for a database that was known as %s; the one that answers at %s now is another one (its identity differs); look whether URL and schema are right; %s",
		holdfast.ErrConflict, mark.From, mark.BegunAt.Format(time.RFC3339), mark.To, m.To, targetLost(m.From))
}

// finished asks the target about the tasks of a source that says they are there.
func (m *Mover) finished(ctx context.Context, mark store.Export) (Moved, error) {
	done, err := m.Target.Import(ctx, mark.Transfer)
	if err == nil && done.Committed() {
		return Moved{Import: done, Already: true, At: mark.FinishedAt}, nil
	}
	if err == nil || errors.Is(err, holdfast.ErrNotFound) {
		err = fmt.Errorf("%w: %s says that its tasks were carried to %s at %s, but that database does not know of it; was it restored from an older backup? %s",
			holdfast.ErrConflict, m.From, m.To, mark.FinishedAt.Format(time.RFC3339), targetLost(m.From))
	}
	return Moved{}, err
}

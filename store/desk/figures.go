package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// figureRow is a figure in the JSON array that figures_add and figures_set read.
type figureRow struct {
	Queue  string `json:"queue"`
	Figure string `json:"figure"`
	N      int64  `json:"n"`
}

// AddFigures writes figures of the present minute. A flow is added to the stored number. A level is stored if the
// minute has none yet; otherwise the first one stays, so that several processes may write the same level. A caller
// that writes the levels of all queues may leave out the zeros, except those of AllQueues. If figures has a queue and
// kind twice, the flows are added up and the first level is taken. Returns ErrInvalid if there are more than
// MaxFigures, or if one has an unknown kind or is negative.
func (d *Desk) AddFigures(ctx context.Context, added []store.Figure) error {
	const operation = "add figures"
	flows, levels, err := figureRows(added)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if len(added) == 0 {
		return nil
	}
	return d.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		if err := transact.ChangeRows(ctx, tx, "figures_add", flows); err != nil {
			return err
		}
		return transact.ChangeRows(ctx, tx, "figures_set", levels)
	})
}

// figureRows returns a row for each queue and kind. They are sorted, so that calls at the same time lock rows in the same
// order.
func figureRows(added []store.Figure) (flows, levels []figureRow, err error) {
	if len(added) > store.MaxFigures {
		return nil, nil, fmt.Errorf("%w: %d figures; at most %d are allowed", holdfast.ErrInvalid, len(added), store.MaxFigures)
	}
	for _, f := range added {
		row := figureRow{column.Text(f.Queue), string(f.Kind), f.N}
		switch {
		case !f.Kind.Valid() || f.N < 0:
			return nil, nil, fmt.Errorf("%w: no figure has the kind %q and the number %d", holdfast.ErrInvalid, f.Kind, f.N)
		case f.Kind.Level():
			levels = append(levels, row)
		default:
			flows = append(flows, row)
		}
	}
	return merged(flows, func(into *figureRow, row figureRow) { into.N += row.N }), merged(levels, func(*figureRow, figureRow) {}), nil
}

// merged sorts rows, and calls add for a row that follows one with the same queue and kind.
func merged(rows []figureRow, add func(into *figureRow, row figureRow)) (result []figureRow) {
	slices.SortStableFunc(rows, func(a, b figureRow) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Figure, b.Figure))
	})
	for _, row := range rows {
		if last := len(result) - 1; last >= 0 && result[last].Queue == row.Queue && result[last].Figure == row.Figure {
			add(&result[last], row)
			continue
		}
		result = append(result, row)
	}
	return result
}

// figureStep is a row of the statement figures: the figures of a kind in a step.
type figureStep struct {
	Figure         string
	At             time.Time
	Total, Highest int64
	Minutes        int
}

// ListFigures returns the figures of a queue, or of AllQueues, in the time last until now, oldest first. A point has
// the figures of a step. The first step has its beginning at or before the beginning of last, and the last step is
// the present one, which has not ended. ListFigures omits the steps for which AllQueues has no figure: then no
// process has written any, and the figures are unknown. Returns ErrInvalid if last is not positive or exceeds
// KeepFigures, or if step is not a positive number of minutes.
//
// It reads a range of the primary key of the figures, and no task.
//
// The figures of all queues show which steps are known.
func (d *Desk) ListFigures(ctx context.Context, queue string, last, step time.Duration) ([]store.FigurePoint, error) {
	const operation = "read figures"
	if last <= 0 || last > store.KeepFigures || step <= 0 || step%time.Minute != 0 {
		return nil, fmt.Errorf("%s: %w: the last %s in steps of %s; at most %s and whole minutes are allowed", operation, holdfast.ErrInvalid, last, step, store.KeepFigures)
	}
	var points []store.FigurePoint
	known := make(map[time.Time]int)
	read := func(queue string, take func(figureStep, int)) error {
		var rows []figureStep
		err := d.transactions.Read(ctx, operation, "figures", &rows, column.Text(queue), last, step, kindNames())
		for _, row := range rows {
			i, ok := known[row.At.UTC()]
			if !ok && queue == store.AllQueues {
				i, known[row.At.UTC()] = len(points), len(points)
				points = append(points, store.FigurePoint{At: row.At.UTC(), Figures: make(map[store.FigureKind]int64)})
			} else if !ok {
				continue
			}
			take(row, i)
		}
		return err
	}
	set := func(row figureStep, i int) {
		kind := store.FigureKind(row.Figure)
		points[i].Figures[kind] = row.Total
		if kind.Level() {
			points[i].Figures[kind] = row.Highest
		}
	}
	err := read(store.AllQueues, func(row figureStep, i int) {
		points[i].Minutes = max(points[i].Minutes, row.Minutes)
		if queue == store.AllQueues {
			set(row, i)
		} else if kind := store.FigureKind(row.Figure); kind.Level() {
			points[i].Figures[kind] = 0
		}
	})
	if err == nil && queue != store.AllQueues {
		err = read(queue, set)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(points, func(a, b store.FigurePoint) int { return a.At.Compare(b.At) })
	return points, nil
}

// PruneFigures deletes at most limit figures that are older than KeepFigures, and returns how many it deleted.
func (d *Desk) PruneFigures(ctx context.Context, limit int) (deleted int, err error) {
	err = d.transactions.Transact(ctx, "prune figures", func(ctx context.Context, tx transact.Transaction) error {
		deleted, err = tx.Change(ctx, "figures_prune", limit, store.KeepFigures, kindNames())
		return err
	})
	return deleted, err
}

func kindNames() []string {
	return scan.Map(store.FigureKinds(), func(k store.FigureKind) string { return string(k) })
}

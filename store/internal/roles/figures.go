package roles

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
)

// figures implements store.Figures.
type figures struct{ transactions Transactions }

// figureRow is a figure in the JSON array that figures_add and figures_set read.
type figureRow struct {
	Queue  string `json:"queue"`
	Figure string `json:"figure"`
	N      int64  `json:"n"`
}

// AddFigures implements store.Figures.
func (r *figures) AddFigures(ctx context.Context, added []store.Figure) error {
	const operation = "add figures"
	flows, levels, err := figureRows(added)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if len(added) == 0 {
		return nil
	}
	return r.transactions.Transact(ctx, operation, func(ctx context.Context, tx Transaction) error {
		if err := changeRows(ctx, tx, "figures_add", flows); err != nil {
			return err
		}
		return changeRows(ctx, tx, "figures_set", levels)
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

// ListFigures implements store.Figures. The figures of all queues show which steps are known.
func (r *figures) ListFigures(ctx context.Context, queue string, last, step time.Duration) ([]store.FigurePoint, error) {
	const operation = "read figures"
	if last <= 0 || last > store.KeepFigures || step <= 0 || step%time.Minute != 0 {
		return nil, fmt.Errorf("%s: %w: the last %s in steps of %s; at most %s and whole minutes are allowed", operation, holdfast.ErrInvalid, last, step, store.KeepFigures)
	}
	var points []store.FigurePoint
	known := make(map[time.Time]int)
	read := func(queue string, take func(figureStep, int)) error {
		var rows []figureStep
		err := r.transactions.Read(ctx, operation, "figures", &rows, column.Text(queue), last, step, kindNames())
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

// PruneFigures implements store.Figures.
func (r *figures) PruneFigures(ctx context.Context, limit int) (deleted int, err error) {
	err = r.transactions.Transact(ctx, "prune figures", func(ctx context.Context, tx Transaction) error {
		deleted, err = tx.Change(ctx, "figures_prune", limit, store.KeepFigures, kindNames())
		return err
	})
	return deleted, err
}

func kindNames() []string {
	return scan.Map(store.FigureKinds(), func(k store.FigureKind) string { return string(k) })
}

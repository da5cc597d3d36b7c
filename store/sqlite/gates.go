package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// gatekeeper is the role store.Gates. Only one transaction writes at a time. So a claim sees every change of the gates
// that was committed before it, and no claim is in progress when Pause commits.
type gatekeeper struct {
	*database
	flowRoles
}

func newGatekeeper(d *database) gatekeeper {
	s := gatekeeper{database: d}
	s.flowRoles = flow.New(named{d}, flow.Hooks{
		Ended:        &d.ended,
		WaitsTooLong: func(error) bool { return false }, // a file has one writer at a time, so no statement waits for a row
		Change:       func(_ context.Context, _ transact.Transaction, f func() error) error { return f() },
		Lock: func(_ context.Context, tx transact.Transaction, _ bool) (time.Time, error) { // no other transaction can write
			return timeOf(tx.(inTransaction).tx.now), nil
		},
		Release: s.release,
		DeleteOpened: func(ctx context.Context, limit int) error {
			return named{d}.Change(ctx, "delete open gates", "gates_delete", limit)
		},
	})
	return s
}

// release makes tasks due whose gates have opened, at most limit, and returns their number.
func (s *gatekeeper) release(ctx context.Context, limit int) (n int, err error) {
	err = s.write(ctx, "release blocked tasks", func(ctx context.Context, tx *transaction) error {
		picked, err := all[scan.ID](ctx, tx, "release_pick", limit)
		if n = len(picked); err != nil || n == 0 {
			return err
		}
		ids := make([]holdfast.TaskID, n)
		for i, row := range picked {
			ids[i] = holdfast.TaskID(row.ID)
		}
		_, err = tx.exec(ctx, "release", numbers(ids), tx.now)
		return err
	})
	return n, err
}

// targetOf is the SQL function target_of(type, payload); see holdfast.TargetOf.
func targetOf(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	taskType, _ := args[0].(string)
	payload, _ := args[1].(string)
	return holdfast.TargetOf(taskType, []byte(payload)), nil
}

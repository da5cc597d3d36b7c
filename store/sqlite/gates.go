package sqlite

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// gatekeeper is the role store.Gates. A single transaction writes at a time, so a claim sees every change of the gates
// that was committed before it, and no claim is in progress when Pause commits.
type gatekeeper struct {
	*database
	gates
}

func newGatekeeper(d *database) gatekeeper {
	return gatekeeper{d, roles.NewGates(named{d}, func(_ context.Context, _ roles.Transaction, f func() error) error { return f() })}
}

// ReleaseBlocked implements store.Gates.
func (s *gatekeeper) ReleaseBlocked(ctx context.Context, limit int) (int, error) {
	open, err := s.OpenExpired(ctx)
	if err != nil || !open {
		return 0, err
	}
	var picked []scan.ID
	err = s.write(ctx, "release blocked tasks", func(ctx context.Context, tx *transaction) error {
		if picked, err = all[scan.ID](ctx, tx, "release_pick", limit); err != nil || len(picked) == 0 {
			return err
		}
		ids := make([]holdfast.TaskID, len(picked))
		for i, row := range picked {
			ids[i] = holdfast.TaskID(row.ID)
		}
		_, err := tx.exec(ctx, "release", numbers(ids), tx.now)
		return err
	})
	if err != nil || len(picked) > 0 {
		return len(picked), err
	}
	return 0, s.Clean(ctx)
}

// targetOf is the SQL function target_of(type, payload); see holdfast.TargetOf.
func targetOf(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	taskType, _ := args[0].(string)
	payload, _ := args[1].(string)
	return holdfast.TargetOf(taskType, []byte(payload)), nil
}

package postgres

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/transact"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// The roles that all adapters share.
type (
	shared    = roles.Shared
	flowRoles = flow.Flow
)

// migrations is the role store.Migrations, except Incarnation.
type migrations = pgclient.Migrator

// named executes statements for the shared roles.
type named struct{ *database }

// Read implements transact.Statements.
func (n named) Read(ctx context.Context, operation, name string, rows any, args ...any) error {
	return n.do(ctx, operation, func() error {
		reflect.ValueOf(rows).Elem().SetZero()
		return n.all(ctx, n.db, rows, name, arguments(args)...)
	})
}

// Change implements transact.Statements.
func (n named) Change(ctx context.Context, operation, name string, args ...any) error {
	_, err := n.change(ctx, operation, name, arguments(args)...)
	return err
}

// Transact implements transact.Transactions.
func (n named) Transact(ctx context.Context, operation string, f func(context.Context, transact.Transaction) error) error {
	var moved []holdfast.Transition
	err := n.do(ctx, operation, func() error {
		return n.inserting(ctx, func(t transaction) error {
			t.moved = &moved
			return f(ctx, t)
		})
	})
	if err == nil {
		n.ended.AddMoved(moved)
	}
	return err
}

// inserting calls f in a transaction. If an insert of f has waited for held keys, it adds them to the error of f, after
// the transaction, because the search needs another connection.
func (d *database) inserting(ctx context.Context, f func(transaction) error) error {
	var refused []holdfast.NewTask
	err := d.tx(ctx, func(tx *sqlx.Tx) error { return f(transaction{querying: querying{d, tx}, tx: tx, refused: &refused}) })
	if len(refused) == 0 {
		return err
	}
	batch, batchErr := batchOf(refused, 0)
	if batchErr != nil { // impossible, because the insert has made the same batch
		return err
	}
	return (&inserter{d}).nameKeys(ctx, batch, err)
}

// querying executes statements for the shared roles in a transaction, which may be one of a caller.
type querying struct {
	*database
	q store.Tx
}

// Read implements transact.Reader.
func (t querying) Read(ctx context.Context, name string, rows any, args ...any) error {
	reflect.ValueOf(rows).Elem().SetZero()
	return t.all(ctx, t.q, rows, name, arguments(args)...)
}

// Change implements transact.Changer.
func (t querying) Change(ctx context.Context, name string, args ...any) (int, error) {
	return t.exec(ctx, t.q, name, arguments(args)...)
}

// transaction executes statements for the shared roles in a transaction.
type transaction struct {
	querying
	tx      *sqlx.Tx
	moved   *[]holdfast.Transition // moves that Apply has applied
	refused *[]holdfast.NewTask    // tasks of an insert that has waited for held keys
}

// Tx implements transact.Transaction.
func (t transaction) Tx() store.Tx { return t.tx }

// Apply implements transact.Transaction.
func (t transaction) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted := make([]bool, len(moves))
	*t.moved = append(*t.moved, moves...)
	return accepted, (&applier{t.database}).applyRounds(ctx, t.tx, moves, roundsOf(moves), accepted)
}

// Insert implements transact.Transaction.
func (t transaction) Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error) {
	return t.InsertMembers(ctx, 0, tasks)
}

// shortKeyWait is keyWait for tasks that are stored together with something else, such as a step of a plan or results of
// other tasks. These must not wait long for one key.
const shortKeyWait = 100 * time.Millisecond

// InsertMembers implements transact.Transaction. Nearly all batches have uniform tasks.
func (t transaction) InsertMembers(ctx context.Context, plan store.ID, tasks []holdfast.NewTask) (store.Inserted, error) {
	inserter := &inserter{t.database}
	if plan != 0 && column.Uniform(tasks) && !column.Traced(tasks) {
		return inserter.insertUniform(ctx, t.tx, plan, tasks, 0)
	}
	if slices.ContainsFunc(tasks, func(task holdfast.NewTask) bool { return task.Unique != "" || task.Ordered }) {
		if err := pgclient.SetTimeout(ctx, t.tx, "lock_timeout", shortKeyWait); err != nil {
			return store.Inserted{}, err
		}
	}
	inserted, err := inserter.insertTx(ctx, t.tx, plan, tasks, 0)
	if err = keyHeld(err); errors.As(err, new(*store.KeyHeldError)) {
		*t.refused = tasks
	}
	return inserted, err
}

// arguments converts arguments to the types that the statements accept. Tickets become two lists.
func arguments(args []any) []any {
	var encoded []any
	for _, arg := range args {
		switch arg := arg.(type) {
		case []message.Ticket:
			tasks, attempts := ticketColumns(arg)
			encoded = append(encoded, tasks, attempts)
		case []holdfast.TaskID:
			encoded = append(encoded, numbers(arg))
		case []string:
			encoded = append(encoded, pq.StringArray(arg))
		case []holdfast.WorkerID:
			encoded = append(encoded, numbers(arg))
		case []holdfast.State:
			states := make(pq.StringArray, len(arg))
			for i, state := range arg {
				states[i] = string(state)
			}
			encoded = append(encoded, states)
		case holdfast.TaskID:
			encoded = append(encoded, int64(arg))
		case time.Duration:
			encoded = append(encoded, micros(arg))
		default:
			encoded = append(encoded, arg)
		}
	}
	return encoded
}

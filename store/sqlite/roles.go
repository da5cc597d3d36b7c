package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// The roles that all adapters share.
type (
	shared    = roles.Shared
	flowRoles = flow.Flow
)

// named executes statements for the shared roles. If a statement has the time as a parameter, it is the last one.
type named struct{ *database }

// Read implements transact.Statements.
func (n named) Read(ctx context.Context, operation, name string, rows any, args ...any) error {
	return n.read(ctx, operation, func(ctx context.Context, c *session) error {
		found, err := c.query(ctx, name, arguments(args, n.now().UnixMicro())...)
		if err != nil {
			return err
		}
		defer found.Close()
		return column.Rows(found, rows)
	})
}

// Change implements transact.Statements.
func (n named) Change(ctx context.Context, operation, name string, args ...any) error {
	_, err := n.change(ctx, operation, name, args...)
	return err
}

// Transact implements transact.Transactions.
func (n named) Transact(ctx context.Context, operation string, f func(context.Context, transact.Transaction) error) error {
	var moved []holdfast.Transition
	err := n.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		return f(ctx, inTransaction{querying{tx, tx.now}, tx, &moved})
	})
	if err == nil {
		n.ended.AddMoved(moved)
	}
	return err
}

// querying executes statements for the shared roles in a transaction, which may be one of a caller. now is the time in
// microseconds.
type querying struct {
	q   querier
	now int64
}

// Read implements transact.Reader.
func (t querying) Read(ctx context.Context, name string, rows any, args ...any) error {
	found, err := t.q.query(ctx, name, arguments(args, t.now)...)
	if err != nil {
		return err
	}
	defer found.Close()
	return column.Rows(found, rows)
}

// Change implements transact.Changer.
func (t querying) Change(ctx context.Context, name string, args ...any) (int, error) {
	return t.q.exec(ctx, name, arguments(args, t.now)...)
}

// inTransaction executes statements for the shared roles in a transaction.
type inTransaction struct {
	querying
	tx    *transaction
	moved *[]holdfast.Transition // moves that Apply has applied
}

// Tx implements transact.Transaction.
func (t inTransaction) Tx() store.Tx { return t.tx.conn }

// Apply implements transact.Transaction.
func (t inTransaction) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted := make([]bool, len(moves))
	*t.moved = append(*t.moved, moves...)
	return accepted, applyAll(ctx, clocked{t.tx, t.now}, complete, moves, accepted)
}

// Insert implements transact.Transaction.
func (t inTransaction) Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error) {
	return insert(ctx, t.tx, tasks, t.tx.now, 0)
}

// InsertMembers implements transact.Transaction.
func (t inTransaction) InsertMembers(ctx context.Context, plan store.ID, tasks []holdfast.NewTask) (store.Inserted, error) {
	return insertMembers(ctx, t.tx, plan, tasks, t.tx.now, 0)
}

// arguments converts arguments to the types that the statements accept, and appends the time.
func arguments(args []any, now int64) []any {
	encoded := make([]any, len(args), len(args)+1)
	for i, arg := range args {
		switch arg := arg.(type) {
		case []message.Ticket:
			encoded[i] = ticketPairs(arg)
		case []holdfast.TaskID:
			encoded[i] = numbers(arg)
		case []holdfast.WorkerID:
			encoded[i] = numbers(arg)
		case []string:
			encoded[i] = stringList(arg)
		case []holdfast.State:
			encoded[i] = stringList(arg)
		case holdfast.TaskID:
			encoded[i] = int64(arg)
		case time.Duration:
			encoded[i] = micros(arg)
		case time.Time:
			encoded[i] = arg.UnixMicro()
		default:
			encoded[i] = arg
		}
	}
	return append(encoded, now)
}

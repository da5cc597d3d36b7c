// Package transact executes the statements of an adapter by name, in transactions, for code that all adapters share.
package transact

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// DefaultLimit is the length of a list if the caller gives none.
const DefaultLimit = 50

// Statements executes the statements of an adapter by name. The adapter converts lists, times and durations among the
// arguments.
type Statements interface {
	// Read executes a query and reads all rows into rows, a pointer to a slice of structs. operation is the prefix of
	// errors.
	Read(ctx context.Context, operation, name string, rows any, args ...any) error
	// Change executes a statement that returns no rows. operation is the prefix of errors.
	Change(ctx context.Context, operation, name string, args ...any) error
}

// Transactions runs several statements of an adapter in one transaction.
type Transactions interface {
	Statements
	// Transact calls f in a transaction. It commits if f returns nil, and rolls back otherwise. It may call f again
	// after a conflict. operation is the prefix of errors.
	Transact(ctx context.Context, operation string, f func(context.Context, Transaction) error) error
}

// Reader executes queries of an adapter by name in a transaction, as Statements does outside of one.
type Reader interface {
	Read(ctx context.Context, name string, rows any, args ...any) error
}

// Changer also executes statements that change rows.
type Changer interface {
	Reader
	// Change returns the number of changed rows.
	Change(ctx context.Context, name string, args ...any) (int, error)
}

// Transaction is a transaction of an adapter.
type Transaction interface {
	Changer
	// Tx returns the transaction for other roles of the adapter.
	Tx() store.Tx
	// Apply does what store.Work.Apply does.
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
	// Insert does what store.Inserter.Insert does. Janitors may publish the tickets at once.
	Insert(ctx context.Context, tasks []holdfast.NewTask) (store.Inserted, error)
	// InsertMembers is Insert for members of a plan.
	InsertMembers(ctx context.Context, plan store.ID, tasks []holdfast.NewTask) (store.Inserted, error)
}

// Alone returns a Reader without a transaction. operation is the prefix of errors.
func Alone(s Statements, operation string) Reader { return alone{s, operation} }

type alone struct {
	statements Statements
	operation  string
}

// Read implements Reader.
func (a alone) Read(ctx context.Context, name string, rows any, args ...any) error {
	return a.statements.Read(ctx, a.operation, name, rows, args...)
}

// ListOf returns a value for each row of a query.
func ListOf[Row, V any](ctx context.Context, r Reader, name string, value func(Row) V, args ...any) ([]V, error) {
	var rows []Row
	if err := r.Read(ctx, name, &rows, args...); err != nil {
		return nil, err
	}
	return scan.Map(rows, value), nil
}

// FirstOf returns the first row of a query, or the error missing if there is none.
func FirstOf[Row any](ctx context.Context, r Reader, missing error, name string, args ...any) (first Row, err error) {
	var rows []Row
	if err := r.Read(ctx, name, &rows, args...); err != nil {
		return first, err
	}
	if len(rows) == 0 {
		return first, missing
	}
	return rows[0], nil
}

// ChangeRows executes a statement that reads rows as a JSON array, unless there are none.
func ChangeRows[Row any](ctx context.Context, tx Changer, name string, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.Change(ctx, name, Encode(rows))
	return err
}

// Bound returns a time in microseconds since 1970. It returns 0, which means no bound, for the zero time.
func Bound(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// database is the part that all roles share: the client, its statements, and what the store keeps in memory. Each role
// embeds it.
type database struct {
	client *pgclient.DB
	db     *sqlx.DB
	// leases is a separate pool for renewals, fencing and health checks. Busy connections of db must not let a lease
	// expire or make the store seem unreachable.
	leases     *sqlx.DB
	schema     string
	statements map[string]string
	queues     sync.Map                  // the names of queues that this process has stored
	gateState  atomic.Pointer[gateState] // nil: unknown
	ended      flow.Ended
	log        logrus.FieldLogger
}

// role is a type that embeds the database.
type role interface{ inner() *database }

func (d *database) inner() *database { return d }

// text returns the statement with the given name in sql/.
func (d *database) text(name string) string { return d.client.Text(name) }

// all reads every row of a statement into dest, a pointer to a slice of structs. q is a pool or a transaction.
func (d *database) all(ctx context.Context, q store.Tx, dest any, name string, args ...any) error {
	return d.client.All(ctx, q, dest, name, args...)
}

// list runs a statement and returns its rows.
func list[Row any](ctx context.Context, r role, operation, name string, args ...any) ([]Row, error) {
	return listOn[Row](ctx, r, r.inner().db, operation, name, args...)
}

// listOn is list on another pool.
func listOn[Row any](
	ctx context.Context, r role, pool *sqlx.DB, operation, name string, args ...any,
) (rows []Row, err error) {
	d := r.inner()
	err = d.do(ctx, operation, func() error {
		rows = nil
		return d.all(ctx, pool, &rows, name, args...)
	})
	return rows, err
}

// one returns the first row of a statement, or sql.ErrNoRows if there is none.
func one[Row any](ctx context.Context, r role, q store.Tx, name string, args ...any) (Row, error) {
	return pgclient.One[Row](ctx, r.inner().client, q, name, args...)
}

// exec runs a statement and returns the number of rows that it changed.
func (d *database) exec(ctx context.Context, q store.Tx, name string, args ...any) (int, error) {
	return d.client.Exec(ctx, q, name, args...)
}

// change runs a statement on db and returns the number of rows that it changed.
func (d *database) change(ctx context.Context, operation, name string, args ...any) (n int, err error) {
	err = d.do(ctx, operation, func() error {
		n, err = d.exec(ctx, d.db, name, args...)
		return err
	})
	return n, err
}

// tx runs f in a transaction. It rolls the transaction back if f returns an error or panics.
func (d *database) tx(ctx context.Context, f func(*sqlx.Tx) error) error { return d.client.Tx(ctx, f) }

// do calls f, again if it fails with a conflict, and translates its error: see [pgclient.DB.Do].
func (d *database) do(ctx context.Context, operation string, f func() error) error {
	return d.client.Do(ctx, operation, f)
}

// tries is how often a claim or an insert reads rows again that other transactions have changed since the first read.
const tries = 6

// micros returns a duration in whole microseconds, for the statements.
func micros(d time.Duration) int64 { return column.Micros(d) }

// Package pgxqueue stores tasks, and the successes of attempts, inside transactions of pgx v5.
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = pgxqueue.Tx(q, tx).Enqueue(ctx, "welcome", Welcome{"ada@example.com"})
//	…
//	err = tx.Commit(ctx)
//
// The package is a module of its own, so that programs without pgx do not depend on pgx.
package pgxqueue

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast/queue"
)

// Tx returns a queue.Tx that stores tasks inside tx, a transaction on the database of the client's store. If tx
// commits, the tasks exist; see [queue.Client.Tx] about their start. If tx does not commit, no task is stored. After an
// error the caller must roll back. Errors of PostgreSQL wrap a *pgconn.PgError.
//
// As everywhere in pgx, only one goroutine at a time may use a transaction.
func Tx(q *queue.Client, tx pgx.Tx) queue.Tx {
	if tx == nil {
		return q.Tx(nil)
	}
	return q.Tx(transaction{tx})
}

// CompleteTx stores the success of the attempt whose handler got ctx in tx, a transaction on the database of the store.
// It is [queue.CompleteTx] for pgx: the task is done if and only if tx commits, together with its output and its next
// tasks. Call it last, just before the commit. After an error the handler must roll back and return the error.
//
//	tx, err := pool.Begin(ctx)
//	…
//	if err := pgxqueue.CompleteTx(ctx, tx); err != nil {
//		return err
//	}
//	return tx.Commit(ctx)
func CompleteTx(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return queue.CompleteTx(ctx, nil)
	}
	return queue.CompleteTx(ctx, transaction{tx})
}

// transaction implements store.Tx and driver.Connector. The store reads results as *sql.Rows, which only package
// database/sql can make. So a query goes through a driver whose only connection is the transaction.
type transaction struct{ tx pgx.Tx }

// ExecContext implements store.Tx.
func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	db := sql.OpenDB(t)
	defer func() { _ = db.Close() }() // does not end the transaction; see connection.Close
	return db.ExecContext(ctx, query, args...)
}

// QueryContext implements store.Tx. It reads all rows before it returns.
func (t transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db := sql.OpenDB(t)
	defer func() { _ = db.Close() }()
	return db.QueryContext(ctx, query, args...)
}

// Connect implements driver.Connector.
func (t transaction) Connect(context.Context) (driver.Conn, error) { return connection(t), nil }

// Driver implements driver.Connector.
func (t transaction) Driver() driver.Driver { return noDriver{} }

var errUnsupported = errors.New("pgxqueue: unsupported operation")

type noDriver struct{}

// Open implements driver.Driver.
func (noDriver) Open(string) (driver.Conn, error) { return nil, errUnsupported }

// connection adapts the transaction to a connection of database/sql.
type connection struct{ tx pgx.Tx }

var (
	_ driver.QueryerContext = connection{}
	_ driver.ExecerContext  = connection{}
)

// Prepare implements driver.Conn.
func (connection) Prepare(string) (driver.Stmt, error) { return nil, errUnsupported }

// Close implements driver.Conn. It does nothing, because the caller owns the transaction.
func (connection) Close() error { return nil }

// Begin implements driver.Conn.
func (connection) Begin() (driver.Tx, error) { return nil, errUnsupported }

// ExecContext implements driver.ExecerContext.
func (c connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tag, err := c.tx.Exec(ctx, query, values(args)...)
	if err != nil {
		return nil, translate(err)
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext implements driver.QueryerContext. It requests all columns in the text format, which the store reads.
func (c connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	result, err := c.tx.Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, values(args)...)...)
	if err != nil {
		return nil, translate(err)
	}
	defer result.Close()
	read := new(bufferedRows)
	for _, column := range result.FieldDescriptions() {
		read.columns = append(read.columns, column.Name)
	}
	for result.Next() {
		row := make([]driver.Value, len(read.columns))
		for i, raw := range result.RawValues() {
			if raw != nil {
				row[i] = string(raw) // a copy, because pgx reuses the memory
			}
		}
		read.rows = append(read.rows, row)
	}
	if err := result.Err(); err != nil {
		return nil, translate(err)
	}
	return read, nil
}

func values(args []driver.NamedValue) []any {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg.Value
	}
	return list
}

// bufferedRows are the rows of a query, read into memory.
type bufferedRows struct {
	columns []string
	rows    [][]driver.Value
}

// Columns implements driver.Rows.
func (r *bufferedRows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *bufferedRows) Close() error { return nil }

// Next implements driver.Rows.
func (r *bufferedRows) Next(into []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(into, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// translate adds a *pq.Error to an error of PostgreSQL, because the store classifies errors of that driver by their
// codes.
func translate(err error) error {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	return &translated{error: err, pq: &pq.Error{
		Severity: failure.Severity, Code: pqerror.Code(failure.Code), Message: failure.Message, Detail: failure.Detail, Hint: failure.Hint,
		Position: strconv.Itoa(int(failure.Position)), Where: failure.Where, Schema: failure.SchemaName, Table: failure.TableName,
		Column: failure.ColumnName, DataTypeName: failure.DataTypeName, Constraint: failure.ConstraintName,
	}}
}

// translated is an error of PostgreSQL in the forms of both drivers.
type translated struct {
	error
	pq *pq.Error
}

// Unwrap returns both forms.
func (t *translated) Unwrap() []error { return []error{t.error, t.pq} }

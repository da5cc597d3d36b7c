// Package pgxqueue stores tasks inside transactions of pgx v5.
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = pgxqueue.Tx(q, tx).Enqueue(ctx, "welcome", Welcome{"ada@example.com"})
//	…
//	err = tx.Commit(ctx)
//
// It is a module of its own: pgx is no requirement of programs that do not use it.
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

// Tx returns what stores tasks inside tx, a transaction on the database of the client's store. The tasks exist exactly if tx
// commits. A janitor publishes them as soon as it has. After an error the caller must roll back. Errors of PostgreSQL wrap a
// *pgconn.PgError.
//
// As with all of pgx, a transaction belongs to one goroutine at a time.
func Tx(q *queue.Client, tx pgx.Tx) queue.Tx {
	if tx == nil {
		return q.Tx(nil)
	}
	return q.Tx(transaction{tx})
}

// transaction has the methods that package store calls. The store reads results as *sql.Rows, which only package
// database/sql can make. So a query goes through a driver whose only connection is the transaction.
type transaction struct{ tx pgx.Tx }

// ExecContext implements store.Tx.
func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	db := sql.OpenDB(t)
	defer func() { _ = db.Close() }() // it closes nothing: see connection.Close
	return db.ExecContext(ctx, query, args...)
}

// QueryContext implements store.Tx. The rows have been read when it returns.
func (t transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db := sql.OpenDB(t)
	defer func() { _ = db.Close() }()
	return db.QueryContext(ctx, query, args...)
}

// Connect implements driver.Connector.
func (t transaction) Connect(context.Context) (driver.Conn, error) { return connection(t), nil }

// Driver implements driver.Connector.
func (t transaction) Driver() driver.Driver { return noDriver{} }

var errUnsupported = errors.New("pgxqueue: the store does not need this")

type noDriver struct{}

// Open implements driver.Driver.
func (noDriver) Open(string) (driver.Conn, error) { return nil, errUnsupported }

// connection is the transaction as a connection of database/sql.
type connection struct{ tx pgx.Tx }

var (
	_ driver.QueryerContext = connection{}
	_ driver.ExecerContext  = connection{}
)

// Prepare implements driver.Conn.
func (connection) Prepare(string) (driver.Stmt, error) { return nil, errUnsupported }

// Close implements driver.Conn. The transaction is the caller's.
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

// QueryContext implements driver.QueryerContext. All columns are in the text format, which the store reads.
func (c connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	result, err := c.tx.Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, values(args)...)...)
	if err != nil {
		return nil, translate(err)
	}
	defer result.Close()
	read := new(rows)
	for _, column := range result.FieldDescriptions() {
		read.columns = append(read.columns, column.Name)
	}
	for result.Next() {
		row := make([]driver.Value, len(read.columns))
		for i, raw := range result.RawValues() {
			if raw != nil {
				row[i] = string(raw) // a copy: pgx uses the memory again
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

// rows are the rows of a query that have been read.
type rows struct {
	columns []string
	rows    [][]driver.Value
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(into []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(into, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// translate adds to an error of PostgreSQL its form in the store's driver, by whose code the store tells what it means.
func translate(err error) error {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	return &refused{error: err, as: &pq.Error{
		Severity: failure.Severity, Code: pqerror.Code(failure.Code), Message: failure.Message, Detail: failure.Detail, Hint: failure.Hint,
		Position: strconv.Itoa(int(failure.Position)), Where: failure.Where, Schema: failure.SchemaName, Table: failure.TableName,
		Column: failure.ColumnName, DataTypeName: failure.DataTypeName, Constraint: failure.ConstraintName,
	}}
}

// refused is an error of PostgreSQL in the forms of both drivers.
type refused struct {
	error
	as *pq.Error
}

// Unwrap returns both forms.
func (r *refused) Unwrap() []error { return []error{r.error, r.as} }

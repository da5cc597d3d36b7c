package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast/store"
)

// session is a connection with the statements that are prepared on it. One goroutine at a time has it.
type session struct {
	conn     *sqlx.Conn
	texts    map[string]string
	prepared map[string]*sql.Stmt
	broken   bool // it must not be used again
}

// querier runs the statements of sql/ by their names.
type querier interface {
	query(ctx context.Context, name string, args ...any) (*sql.Rows, error)
	// exec returns how many rows were changed.
	exec(ctx context.Context, name string, args ...any) (int, error)
}

func (c *session) statement(ctx context.Context, name string) (*sql.Stmt, error) {
	if statement, ok := c.prepared[name]; ok {
		return statement, nil
	}
	statement, err := c.conn.PrepareContext(ctx, text(c.texts, name))
	if err != nil {
		return nil, err
	}
	c.prepared[name] = statement
	return statement, nil
}

func (c *session) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	statement, err := c.statement(ctx, name)
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

func (c *session) exec(ctx context.Context, name string, args ...any) (int, error) {
	statement, err := c.statement(ctx, name)
	if err != nil {
		return 0, err
	}
	return changed(statement.ExecContext(ctx, args...))
}

// close ends the connection, and with it a transaction that is open. A connection with statements would live on in
// SQLite, with its files and locks, and database/sql knows nothing of those that belong to one connection.
func (c *session) close() error {
	for _, statement := range c.prepared {
		_ = statement.Close()
	}
	err := c.conn.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(err, driver.ErrBadConn) {
		err = nil
	}
	if closeErr := c.conn.Close(); !errors.Is(closeErr, sql.ErrConnDone) {
		err = errors.Join(err, closeErr)
	}
	return err
}

// callers is a transaction of a caller, whose connection we know nothing of.
type callers struct {
	tx    store.Tx
	texts map[string]string
}

func (c callers) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	return c.tx.QueryContext(ctx, text(c.texts, name), args...)
}

func (c callers) exec(ctx context.Context, name string, args ...any) (int, error) {
	return changed(c.tx.ExecContext(ctx, text(c.texts, name), args...))
}

func changed(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// all reads every row of a statement; Row is a struct.
func all[Row any](ctx context.Context, q querier, name string, args ...any) ([]Row, error) {
	rows, err := q.query(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Row
	if err := sqlx.StructScan(rows, &list); err != nil {
		return nil, err
	}
	return list, nil
}

// one reads the first row of a statement; sql.ErrNoRows if there is none.
func one[Row any](ctx context.Context, q querier, name string, args ...any) (Row, error) {
	list, err := all[Row](ctx, q, name, args...)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		var none Row
		return none, err
	}
	return list[0], nil
}

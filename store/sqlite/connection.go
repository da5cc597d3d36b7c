package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// pragma is a setting of a connection, as name(value).
type pragma string

const (
	impatient pragma = "busy_timeout(0)" // see patiently
	patient   pragma = "busy_timeout(30000)"
)

// common are those of every connection.
func common(wait pragma) []pragma {
	return []pragma{wait, "foreign_keys(on)", "temp_store(memory)", "trusted_schema(off)"}
}

// writing are those of connections that write. Full: a transaction is on the disk when it returns. What the file of
// changes has grown to in a burst it gives back when it is over.
func writing(wait pragma) []pragma {
	return append(common(wait), "synchronous(full)", "journal_size_limit(67108864)", "cache_size(-16000)")
}

// reading are those of connections that only read.
func reading() []pragma { return append(common(impatient), "query_only(on)", "cache_size(-4000)") }

// opener opens connections to one file.
type opener struct {
	driver *sqlite.Driver
	name   string
}

// connector returns what opens connections to the file, each with the settings.
func connector(path string, settings []pragma) driver.Connector {
	// A driver of its own, so that the function is nobody else's.
	d := &sqlite.Driver{}
	d.MustRegisterDeterministicScalarFunction("contains", 2, contains)
	query := make(url.Values)
	for _, setting := range settings {
		query.Add("_pragma", string(setting))
	}
	return &opener{driver: d, name: dataSource(path) + "&" + query.Encode()}
}

// dataSource writes an absolute path as SQLite's URI, which does not make the file if it is gone.
func dataSource(path string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", OmitHost: false, Path: path, RawQuery: "mode=rw"}).String()
}

// Connect implements driver.Connector.
func (o *opener) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return o.driver.Open(o.name)
}

// Driver implements driver.Connector.
func (o *opener) Driver() driver.Driver { return o.driver }

// contains is the SQL function contains(text, part): whether part is in text, ignoring case in
// every script. SQLite's own functions know that of ASCII only.
func contains(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	text, _ := args[0].(string) // nil contains nothing
	part, ok := args[1].(string)
	if !ok {
		return nil, fmt.Errorf("contains: the second argument is a %T", args[1])
	}
	if args[0] != nil && strings.Contains(strings.ToLower(text), strings.ToLower(part)) {
		return int64(1), nil
	}
	return int64(0), nil
}

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
	if prepared, ok := c.prepared[name]; ok {
		return prepared, nil
	}
	prepared, err := c.conn.PrepareContext(ctx, statement.Text(c.texts, name))
	if err != nil {
		return nil, err
	}
	c.prepared[name] = prepared
	return prepared, nil
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
	return c.tx.QueryContext(ctx, statement.Text(c.texts, name), args...)
}

func (c callers) exec(ctx context.Context, name string, args ...any) (int, error) {
	return changed(c.tx.ExecContext(ctx, statement.Text(c.texts, name), args...))
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

//go:embed sql/*.sql
var files embed.FS

// statements reads the embedded files.
func statements() map[string]string {
	texts := statement.Load(files, nil,
		statement.Variant{Name: "list_dead", Of: "list", Part: "all_tasks", Is: "dead_tasks"},
		statement.Variant{Name: "list_running", Of: "list", Part: "all_tasks", Is: "running_tasks"},
		statement.Variant{Name: "count_dead", Of: "count", Part: "all_tasks", Is: "dead_tasks"},
		statement.Variant{Name: "count_running", Of: "count", Part: "all_tasks", Is: "running_tasks"},
	)
	for _, name := range []string{begin, commit, rollback} {
		texts[name] = name
	}
	return texts
}

// The statements that begin and end a transaction.
const (
	begin    = "begin immediate"
	commit   = "commit"
	rollback = "rollback"
)

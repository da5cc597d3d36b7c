package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// pragma is a setting of a connection in the form name(value).
type pragma string

const (
	noWait   pragma = "busy_timeout(0)" // retryBusy waits instead
	lockWait pragma = "busy_timeout(30000)"
)

// common returns the settings of every connection.
func common(wait pragma) []pragma {
	return []pragma{wait, "foreign_keys(on)", "temp_store(memory)", "trusted_schema(off)"}
}

// writing returns the settings of connections that write. With synchronous(full), a transaction is on disk when its
// commit returns. journal_size_limit truncates a write-ahead log that a burst has enlarged.
func writing(wait pragma) []pragma {
	return append(common(wait), "synchronous(full)", "journal_size_limit(67108864)", "cache_size(-16000)")
}

// reading returns the settings of connections that only read.
func reading() []pragma { return append(common(noWait), "query_only(on)", "cache_size(-4000)") }

// opener opens connections to one file.
type opener struct {
	driver *sqlite.Driver
	name   string
}

// connector returns a connector that opens connections to the file with the settings.
func connector(path string, settings []pragma) driver.Connector {
	// With a separate driver, only these connections get the functions.
	d := &sqlite.Driver{}
	d.MustRegisterDeterministicScalarFunction("contains", 2, contains)
	d.MustRegisterDeterministicScalarFunction("payload_matches", 2, new(payloads).match)
	d.MustRegisterDeterministicScalarFunction("target_of", 2, targetOf)
	d.MustRegisterDeterministicScalarFunction("greatest", -1, extreme("greatest", 1))
	d.MustRegisterDeterministicScalarFunction("least", -1, extreme("least", -1))
	query := make(url.Values)
	for _, setting := range settings {
		query.Add("_pragma", string(setting))
	}
	return &opener{driver: d, name: dataSource(path) + "&" + query.Encode()}
}

// dataSource returns an absolute path as a URI of SQLite. With it, SQLite does not create a missing file.
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

// extreme returns the SQL function greatest if sign is 1, or least if sign is -1. The result is the greatest or least
// of the numbers that are not null, as in PostgreSQL. The functions max and min of SQLite return null if an argument is
// null.
func extreme(name string, sign int) func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
	return func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		var found driver.Value
		for _, arg := range args {
			if arg == nil {
				continue
			}
			if found == nil {
				found = arg
				continue
			}
			order, err := compareNumbers(arg, found)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if order == sign {
				found = arg
			}
		}
		return found, nil
	}
}

// compareNumbers returns -1 if a is less than b, 1 if it is greater, and 0 if they are equal.
func compareNumbers(a, b driver.Value) (int, error) {
	i, integer := a.(int64)
	j, integers := b.(int64)
	if integer && integers {
		return cmp.Compare(i, j), nil
	}
	x, ok := a.(float64)
	if integer {
		x, ok = float64(i), true
	}
	y, both := b.(float64)
	if integers {
		y, both = float64(j), true
	}
	if !ok || !both {
		return 0, fmt.Errorf("%v and %v are not two numbers", a, b)
	}
	return cmp.Compare(x, y), nil
}

// contains is the SQL function contains(text, part). It reports whether part is in text, ignoring case in every script.
// The functions of SQLite ignore case only in ASCII.
func contains(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	text, _ := args[0].(string) // "" if null
	part, ok := args[1].(string)
	if !ok {
		return nil, fmt.Errorf("contains: the second argument is a %T", args[1])
	}
	if args[0] != nil && strings.Contains(strings.ToLower(text), strings.ToLower(part)) {
		return int64(1), nil
	}
	return int64(0), nil
}

// payloads is the SQL function payload_matches(payload, terms). It reports whether a payload has the values that a JSON
// list of store.PayloadTerm describes.
type payloads struct {
	latest atomic.Pointer[payloadTerms] // terms of the previous call, because all calls of a scan have the same terms
}

type payloadTerms struct {
	text string
	list []store.PayloadTerm
}

func (p *payloads) match(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	payload, _ := args[0].(string)
	text, _ := args[1].(string)
	terms := p.latest.Load()
	if terms == nil || terms.text != text {
		terms = &payloadTerms{text: text}
		if err := json.Unmarshal([]byte(text), &terms.list); err != nil {
			return nil, fmt.Errorf("payload_matches: %w", err)
		}
		p.latest.Store(terms)
	}
	if store.MatchPayload(terms.list, []byte(payload)) {
		return int64(1), nil
	}
	return int64(0), nil
}

// session is a connection with its prepared statements. Only one goroutine at a time may use it.
type session struct {
	conn     *sqlx.Conn
	texts    map[string]string
	prepared map[string]*sql.Stmt
	broken   bool // a caller must not use it again
}

// querier runs the statements of sql/ by their names.
type querier interface {
	query(ctx context.Context, name string, args ...any) (*sql.Rows, error)
	// exec returns the number of changed rows.
	exec(ctx context.Context, name string, args ...any) (int, error)
	// insert executes a statement that inserts rows, and returns the id of the last one and their number.
	insert(ctx context.Context, name string, args ...any) (last int64, n int, err error)
}

// clocked executes statements at one time, in microseconds.
type clocked struct {
	querier
	now int64
}

// statement returns the prepared statement with the given name, and prepares it at its first use.
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

func (c *session) insert(ctx context.Context, name string, args ...any) (last int64, n int, err error) {
	statement, err := c.statement(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	return inserted(statement.ExecContext(ctx, args...))
}

// close closes the connection, which rolls an open transaction back. It closes the prepared statements first. Otherwise
// SQLite keeps the connection with its files and locks, because database/sql does not close statements that were
// prepared on a single connection.
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

// callerTx is a transaction of a caller. Its connection has no prepared statements of this package.
type callerTx struct {
	tx    store.Tx
	texts map[string]string
}

func (c callerTx) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	return c.tx.QueryContext(ctx, statement.Text(c.texts, name), args...)
}

func (c callerTx) exec(ctx context.Context, name string, args ...any) (int, error) {
	return changed(c.tx.ExecContext(ctx, statement.Text(c.texts, name), args...))
}

func (c callerTx) insert(ctx context.Context, name string, args ...any) (last int64, n int, err error) {
	return inserted(c.tx.ExecContext(ctx, statement.Text(c.texts, name), args...))
}

// inserted returns the id of the last inserted row and the number of rows.
func inserted(result sql.Result, err error) (last int64, n int, _ error) {
	n, err = changed(result, err)
	if err != nil {
		return 0, 0, err
	}
	last, err = result.LastInsertId()
	return last, n, err
}

// changed returns the number of changed rows.
func changed(result sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// all returns all rows of a statement. Row is a struct.
func all[Row any](ctx context.Context, q querier, name string, args ...any) ([]Row, error) {
	rows, err := q.query(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Row
	err = column.Rows(rows, &list)
	return list, err
}

// one returns the first row of a statement, or sql.ErrNoRows if there is none.
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

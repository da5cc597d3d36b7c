package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	"modernc.org/sqlite"
)

// Settings of every connection, and of those that write and read.
const (
	common = "pragma busy_timeout = 0; pragma foreign_keys = on; pragma temp_store = memory; pragma trusted_schema = off;"
	// Full: a transaction is on the disk when it returns. What the file of changes has grown to in a burst it
	// gives back when it is over.
	writing = common + "pragma synchronous = full; pragma journal_size_limit = 67108864; pragma cache_size = -16000;"
	reading = common + "pragma query_only = on; pragma cache_size = -4000;"
)

// opener opens connections to one file.
type opener struct {
	driver   *sqlite.Driver
	name     string
	settings string
}

// connector returns what opens connections to the file, each with the settings.
func connector(path, settings string) driver.Connector {
	// A driver of its own, so that the function is nobody else's.
	d := &sqlite.Driver{}
	d.MustRegisterDeterministicScalarFunction("contains", 2, contains)
	return &opener{driver: d, name: dataSource(path), settings: settings}
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
	conn, err := o.driver.Open(o.name)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), o.settings, nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
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

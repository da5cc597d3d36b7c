package pgclient

import (
	"context"
	"database/sql/driver"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// Parameters are values of the server's run-time parameters, by name. This package sets them with a statement, not as
// startup parameters, because connection poolers drop or refuse startup parameters that they do not know.
type Parameters map[string]string

// standard are the parameters that every session needs.
var standard = Parameters{
	"statement_timeout":                   milliseconds(statementTimeout),
	"idle_in_transaction_session_timeout": milliseconds(idleInTransaction),
	// Without this limit, a server that sends to an ended or frozen process keeps the locks of the statement for a
	// quarter of an hour.
	"tcp_user_timeout":              milliseconds(15 * time.Second),
	"tcp_keepalives_idle":           "10",
	"tcp_keepalives_interval":       "5",
	"tcp_keepalives_count":          "3",
	"default_transaction_isolation": "read committed",
	"timezone":                      "UTC",
	// The statements look up a few rows by id, in tables whose statistics are always out of date. Other plans are
	// sometimes a little faster, and often many times slower.
	"jit":              "off",
	"enable_seqscan":   "off", // if there is no other plan, the planner still uses this one
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"random_page_cost": "1.1",
}

// unlimited returns the parameters of a transaction that may take long, such as a migration. Such a transaction must
// not block others for long. The parameters belong to the transaction: if a pooler gave it another session, parameters
// of the session would be lost, and the tables would be created in another schema.
func unlimited(schema string) Parameters {
	return Parameters{
		"statement_timeout":                   "0",
		"idle_in_transaction_session_timeout": "0",
		"lock_timeout":                        milliseconds(lockTimeout),
		"search_path":                         pq.QuoteIdentifier(schema),
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// with returns a copy with more parameters, which override those of p.
func (p Parameters) with(more Parameters) Parameters {
	all := make(Parameters, len(p)+len(more))
	maps.Copy(all, p)
	maps.Copy(all, more)
	return all
}

//go:embed sql/set.sql
var setFile string

var setText = statement.Compact(setFile)

// send sets the parameters on a connection, in one round trip.
func (p Parameters) send(ctx context.Context, on driver.ExecerContext, local bool) error {
	names, values := p.columns()
	var args []driver.NamedValue
	for _, list := range []pq.StringArray{names, values} {
		value, err := list.Value()
		if err != nil {
			return err
		}
		args = append(args, driver.NamedValue{Ordinal: len(args) + 1, Value: value})
	}
	_, err := on.ExecContext(ctx, setText, append(args, driver.NamedValue{Ordinal: 3, Value: local}))
	return err
}

// set sets the parameters of the transaction tx if local is true, and otherwise of the session q.
func (p Parameters) set(ctx context.Context, q store.Tx, local bool) error {
	names, values := p.columns()
	_, err := exec(ctx, q, setText, names, values, local)
	return err
}

// try sets the parameters on an open connection. It returns an ErrInvalid if the server refuses one of them.
func (p Parameters) try(ctx context.Context, on *conn) error {
	defer on.guard(ctx)()
	err := p.send(ctx, on.pqConn, false)
	if kind := Kind(err); err != nil && pq.As(err) != nil && kind != holdfast.ErrUnavailable {
		return holdfast.WithHint(fmt.Errorf("%w: PostgreSQL refuses a parameter of its URL: %w", holdfast.ErrInvalid, err),
			holdfast.Hint{Kind: holdfast.HintCheckDatabase, Arg: "the parameters"})
	}
	return Translate(ctx, "set the parameters of the URL of PostgreSQL", err)
}

// columns returns the parameters as two columns, the arguments of sql/set.sql.
func (p Parameters) columns() (names, values pq.StringArray) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		names, values = append(names, name), append(values, p[name])
	}
	return names, values
}

// SetTimeout sets a parameter of the transaction tx to a duration in milliseconds.
func SetTimeout(ctx context.Context, tx store.Tx, name string, d time.Duration) error {
	return Parameters{name: milliseconds(d)}.set(ctx, tx, true)
}

// ReadParameters returns the values of the standard parameters and of those named in more, in a session. The names are
// in lower case. Its errors are untranslated; see [DB.Do].
func (d *DB) ReadParameters(ctx context.Context, more ...string) (Parameters, error) {
	var rows []struct{ Name, Setting string }
	names := slices.AppendSeq(more, maps.Keys(standard))
	if err := all(ctx, d.Main, &rows, d.own("parameters"), pq.StringArray(names)); err != nil {
		return nil, err
	}
	found := make(Parameters, len(rows))
	for _, row := range rows {
		found[row.Name] = row.Setting
	}
	return found, nil
}

// Lacking returns the standard parameters that p lacks or has with another value, as "name = value". It skips the
// parameters of TCP, which a session cannot read if the pooler is on the server's machine.
func (p Parameters) Lacking() []string {
	var lacking []string
	for _, name := range slices.Sorted(maps.Keys(standard)) {
		if !strings.HasPrefix(name, "tcp_") && p[name] != standard[name] {
			lacking = append(lacking, name+" = "+pq.QuoteLiteral(standard[name]))
		}
	}
	return lacking
}

package pgclient

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// Options configures a DB. All members except DirectURL and Prepare are required.
type Options struct {
	// URL is the address of the server: postgres://user:password@host:port/database, or the form key=value.
	URL string
	// DirectURL leads to the same database without a connection pooler in between. The pool Unlimited and the sessions
	// that callers keep use it. Empty means URL.
	DirectURL string
	// Schema is the schema of the tables. The caller has checked that it is an identifier.
	Schema string
	// MaxConns is the maximum number of connections of Main, at least 1. Reserved and Unlimited have up to four more
	// each.
	MaxConns int
	// Statements are the texts of the statements, by name. Tables are named with their schema.
	Statements map[string]string
	// Prepare has the texts of the statements that each connection of Main prepares and keeps.
	Prepare map[string]bool
	Log     logrus.FieldLogger
}

// sideConns is the number of connections of Reserved, and of Unlimited.
const sideConns = 4

//go:embed sql/*.sql
var files embed.FS

// ownStatements returns the statements of this package for one schema.
func ownStatements(schema string) map[string]string {
	quoted := pq.QuoteIdentifier(schema)
	texts := statement.Load(statement.PostgreSQL, map[string]string{"schema": quoted}, nil, files)
	for name, text := range texts {
		texts[name] = strings.ReplaceAll(text, "holdfast.", quoted+".")
	}
	return texts
}

// Open connects to the server, and finds out whether a connection pooler is in between. It neither creates nor checks
// the schema; see [Migrator]. The error wraps holdfast.ErrUnavailable if the server cannot be reached, and
// holdfast.ErrInvalid if a URL or the mode of a pooler is wrong. It never contains the password.
func Open(ctx context.Context, o Options) (_ *DB, err error) {
	to, err := parse(o.URL, o.Log)
	if err != nil {
		return nil, err
	}
	kind, first, err := probe(ctx, to.config)
	if err != nil {
		return nil, unreachable(ctx, to.config, err)
	}
	main := &connector{config: to.config, readTimeout: readTimeout}
	main.first.Store(first)
	defer func() {
		if err != nil {
			main.dropFirst()
		}
	}()
	if err = to.check(ctx, kind, first); err != nil {
		return nil, err
	}
	direct, sessions, err := parseDirect(ctx, o.DirectURL, kind, o.Log)
	if err != nil {
		return nil, err
	}
	if kind == lentSession {
		to.parameters = nil // other programs may get the session later, and would inherit its parameters
	}
	if o.DirectURL == "" {
		direct = to
	}
	d := &DB{
		config: to.config, direct: direct, pooling: kind, sessions: sessions, mixed: new(atomic.Bool),
		schema: o.Schema, statements: o.Statements, ownTexts: ownStatements(o.Schema), log: o.Log,
	}
	d.openPools(main, to, o)
	if kind == lentSession {
		d.warnOfParameters(ctx)
	}
	return d, nil
}

// openPools makes the pools. They open their connections when they are used.
func (d *DB) openPools(main *connector, to target, o Options) {
	main.parameters, main.prepare, main.mixed = to.parameters, o.Prepare, d.mixed
	d.Main = main.pool(o.MaxConns)
	d.Reserved = (&connector{config: to.config, parameters: to.parameters, readTimeout: readTimeout}).pool(sideConns)
	d.Unlimited = (&connector{config: d.direct.config, parameters: d.direct.parameters, local: unlimited(o.Schema)}).pool(sideConns)
}

// check returns an ErrInvalid if the parameters of the URL have no effect because of a pooler, or if the server refuses
// one of them. first is an open connection, or nil if there is none.
func (t target) check(ctx context.Context, kind pooling, first *conn) error {
	if len(t.given) == 0 {
		return nil
	}
	if kind == lentSession {
		err := fmt.Errorf("%w: the URL of PostgreSQL sets %s, which a connection pooler in transaction mode does not keep", holdfast.ErrInvalid, strings.Join(t.given, ", "))
		return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: pq.QuoteIdentifier(t.config.User)})
	}
	if first == nil {
		return nil
	}
	return t.parameters.try(ctx, first)
}

// parseDirect reads the direct URL, which may be empty, and checks that no pooler is in between. kind is the pooling of
// the main URL. sessions reports whether callers can keep sessions.
func parseDirect(ctx context.Context, address string, kind pooling, log logrus.FieldLogger) (to target, sessions bool, err error) {
	if kind == mixedSession {
		return target{}, false, errMixed
	}
	if address == "" {
		return target{}, kind == ownSession, nil
	}
	if to, err = parse(address, log); err != nil {
		return target{}, false, fmt.Errorf("the direct URL: %w", err)
	}
	own, first, err := probe(ctx, to.config)
	if err != nil {
		return target{}, false, unreachable(ctx, to.config, err)
	}
	if first != nil {
		_ = first.Close()
	}
	if own != ownSession {
		err := fmt.Errorf("%w: the direct URL of PostgreSQL leads through a connection pooler that lends sessions for single transactions", holdfast.ErrInvalid)
		return target{}, false, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintDirectURL})
	}
	return to, true, nil
}

// warnOfParameters logs the standard parameters that sessions behind a pooler lack.
func (d *DB) warnOfParameters(ctx context.Context) {
	found, err := d.ReadParameters(ctx)
	if err != nil {
		return // the next statement reports the error
	}
	if lacking := found.Lacking(); len(lacking) > 0 {
		d.log.WithField("settings", strings.Join(lacking, ", ")).
			Warn("sessions of the connection pooler lack settings, set them for the role, see docs/poolers.md")
	}
}

// Package postgres is the store on PostgreSQL 13 or newer.
//
// Each role of the store contract is a type in a file of its own, and a Store is the sum of the roles. All roles embed
// the same database, see database.go, which executes statements with package pgclient. The statements of the roles are
// in sql/, named after the operations. They name tables as holdfast.tasks and so on. Open replaces "holdfast" with the
// configured schema, so a statement means the same in a caller's transaction, whatever its search_path is.
//
// # What the store promises
//
// Every call returns soon after its context ends, even if the network or the server hangs. A call whose context has no
// deadline fails after 35 s without an answer. Only calls that wait for a presence lock wait longer.
//
// If the answer to a statement is lost, the store does not send the statement again. The caller decides.
//
// A call that fails with a deadlock or a serialization failure is repeated a few times. Such failures are rare, because
// statements lock rows in the order of their ids. A repair that reads all tasks works in steps. Each step is a short
// transaction over a range of ids, so its length does not depend on the number of tasks.
//
// # What the store keeps in memory
//
// The store remembers the queues that it has stored, whether there are gates, and which cancellations the workers of
// this process have received. Losing this memory does no harm.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// Defaults of Options.
const (
	DefaultSchema   = "holdfast"
	DefaultMaxConns = 20
)

// Options configures a Store. URL is required.
type Options struct {
	// URL is the address of the server: postgres://user:password@host:port/database, or the form key=value.
	URL string
	// DirectURL leads to the same database without a connection pooler in between. The sessions of its connections hold
	// the presence locks and the locks of migrations. Empty means URL.
	DirectURL string
	// Schema is the schema of the tables, a lower-case identifier. Empty means DefaultSchema.
	Schema string
	// MaxConns is the maximum number of connections; 0 means DefaultMaxConns. The store opens up to four more to renew
	// leases and to fence workers, and one more for each Acquire and each Watch of package presence.
	MaxConns int
	Log      logrus.FieldLogger // nil discards
}

// Store is a store.Store on one schema of one PostgreSQL database. It is safe for concurrent use.
type Store struct {
	*database
	inserter
	dispatcher
	leaser
	claimer
	applier
	shared
	*desk.Desk
	fencer
	repairer
	keeper
	counters
	gatekeeper
	*migrations
	transfers
	presenter
}

var _ store.Store = (*Store)(nil)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Open connects to the server. It neither creates nor checks the schema: see MigrateUp and CheckSchema. The error wraps
// holdfast.ErrUnavailable if the server cannot be reached, and holdfast.ErrInvalid if an option is wrong. It never
// contains the password.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.MaxConns == 0 {
		o.MaxConns = DefaultMaxConns
	}
	o.Log = logs.Limited(o.Log)
	if err := o.validate(); err != nil {
		return nil, err
	}
	texts := statements(o.Schema)
	client, err := pgclient.Open(ctx, pgclient.Options{
		URL: o.URL, DirectURL: o.DirectURL, Schema: o.Schema, MaxConns: o.MaxConns, Statements: texts, Prepare: frequent(texts), Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	return newStore(&database{
		client: client, db: client.Main, leases: client.Reserved, schema: o.Schema, statements: texts, log: o.Log,
	}), nil
}

// validate checks the options except the URLs.
func (o Options) validate() error {
	if !schemaName.MatchString(o.Schema) || strings.HasPrefix(o.Schema, "pg_") {
		return fmt.Errorf("%w: the schema name %.70q must be lower-case letters, digits and _, and not begin with pg_", holdfast.ErrInvalid, o.Schema)
	}
	if o.MaxConns < 1 {
		return fmt.Errorf("%w: max conns %d must be at least 1", holdfast.ErrInvalid, o.MaxConns)
	}
	return nil
}

// newStore returns the sum of the roles.
func newStore(d *database) *Store {
	return &Store{
		database:   d,
		inserter:   inserter{d},
		dispatcher: dispatcher{d},
		leaser:     leaser{database: d, renewers: renewers{db: d.client.Sessions(nil)}},
		claimer:    claimer{d},
		applier:    applier{d},
		shared:     roles.NewShared(named{d}, &d.ended),
		Desk:       desk.New(named{d}),
		fencer:     fencer{database: d},
		repairer:   repairer{database: d},
		keeper:     keeper{d},
		counters:   counters{d, roles.NewCounters(named{d})},
		gatekeeper: newGatekeeper(d),
		migrations: pgclient.NewMigrator(d.client, d.queues.Clear),
		transfers:  transfers{d},
		presenter:  presenter{d, d.client.Sessions(presenceParameters), newPresenceSessions()},
	}
}

// Schema returns the name of the schema with the tables.
func (s *Store) Schema() string { return s.schema }

// Ready returns an error that wraps holdfast.ErrInvalid if a pooler does not track prepared statements. It probes the
// pooler again only after a connection has not found its prepared statement.
func (s *Store) Ready(ctx context.Context) error { return s.client.Ready(ctx) }

// KeepsSessions reports whether the store has sessions of its own. Presence requires them.
func (s *Store) KeepsSessions() bool { return s.client.KeepsSessions() }

// Close implements store.Store. It also releases all presence locks.
func (s *Store) Close() error {
	s.presenceSessions.close()
	return errors.Join(s.client.Close(), s.locks.Close(), s.renewers.close())
}

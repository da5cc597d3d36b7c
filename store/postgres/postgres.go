// Package postgres is the store on PostgreSQL 13 or newer.
//
// Each role of the store contract is a type in a file of its own, and a Store is the sum of the roles. All roles embed
// the same database: see database.go. Their statements are in sql/, named after the operations. The statements name
// tables as holdfast.tasks and so on. Open replaces "holdfast" with the configured schema, so a statement means the
// same in a caller's transaction, whatever its search_path is.
//
// # What the store promises
//
// Every call returns soon after its context ends, even if the network or the server hangs. A call whose context has no
// deadline fails after [readTimeout] without an answer. Only calls that wait for a presence lock wait longer.
//
// If the answer to a statement is lost, the store does not send the statement again. The caller decides.
//
// A call that fails with a deadlock or a serialization failure is repeated a few times. Such failures are rare, because
// statements lock rows in the order of their ids. A repair that reads all tasks works in steps. Each step is a short
// transaction over a range of ids, so its length does not depend on the number of tasks.
//
// # What the store keeps in memory
//
// The store remembers the queues that it has stored, whether there are gates, and which cancellations the workers of this
// process have received. Losing this memory does no harm.
package postgres

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/internal/serverurl"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/roles"
)

// Defaults of Options.
const (
	DefaultSchema   = "holdfast"
	DefaultMaxConns = 20
)

const (
	statementTimeout = 30 * time.Second
	connectTimeout   = 5 * time.Second
	// leaseConns is enough for a renewal, a search for expired leases, and health checks at the same time.
	leaseConns = 4
	// unpooled makes a pool that has no limit and keeps no idle connection.
	unpooled = -1
	// idleInTransaction ends the transaction of a frozen process, which unlocks its rows. Dispatching has a shorter
	// limit: see publishLimit.
	idleInTransaction = 30 * time.Second
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
	ticketer
	fencer
	patroller
	repairer
	keeper
	inspector
	deaths
	notices
	auditor
	verifier
	tokens
	answers
	counters
	operator
	gatekeeper
	settable
	migrator
	transfers
	presenter

	config  pq.Config
	pooling pooling
	mixed   *atomic.Bool
}

var _ store.Store = (*Store)(nil)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Open connects to the server. It neither creates nor checks the schema: see MigrateUp and CheckSchema. The error wraps
// holdfast.ErrUnavailable if the server cannot be reached, and holdfast.ErrInvalid if an option is wrong. It never
// contains the password.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.MaxConns == 0 {
		o.MaxConns = DefaultMaxConns
	}
	o.Log = logs.Limited(o.Log)
	if !schemaName.MatchString(o.Schema) || strings.HasPrefix(o.Schema, "pg_") {
		return nil, fmt.Errorf("%w: the schema name %.70q must be lower-case letters, digits and _, and not begin with pg_", holdfast.ErrInvalid, o.Schema)
	}
	if o.MaxConns < 1 {
		return nil, fmt.Errorf("%w: max conns %d must be at least 1", holdfast.ErrInvalid, o.MaxConns)
	}
	config, session, given, err := configure(o.URL, o.Log)
	if err != nil {
		return nil, err
	}
	kind, first, err := probe(ctx, config)
	if err != nil {
		return nil, unreachable(ctx, config, err)
	}
	main := &connector{config: config, readTimeout: readTimeout}
	main.first.Store(first)
	defer func() {
		if err != nil {
			main.dropFirst()
		}
	}()
	if kind == lentSession && len(given) > 0 {
		err := fmt.Errorf("%w: the URL of PostgreSQL sets %s, which a connection pooler in transaction mode does not keep", holdfast.ErrInvalid, strings.Join(given, ", "))
		return nil, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: pq.QuoteIdentifier(config.User)})
	}
	if first != nil && len(given) > 0 {
		if err = session.try(ctx, first); err != nil {
			return nil, err
		}
	}
	direct, directSession, sessions, err := configureDirect(ctx, o.DirectURL, kind, o.Log)
	if err != nil {
		return nil, err
	}
	if kind == lentSession {
		session = nil // other programs may get the same session later, and would inherit these settings
	}
	if o.DirectURL == "" {
		direct, directSession = config, session
	}
	texts, mixed := statements(o.Schema), new(atomic.Bool)
	main.settings, main.prepare, main.mixed = session, frequent(texts), mixed
	d := &database{
		db:         open(main, o.MaxConns),
		leases:     open(&connector{config: config, settings: session, readTimeout: readTimeout}, leaseConns),
		migrations: open(&connector{config: direct, settings: directSession, local: migrationSettings(o.Schema)}, 4),
		schema:     o.Schema,
		sessions:   sessions,
		statements: texts,
		log:        o.Log,
	}
	s := &Store{
		database:   d,
		inserter:   inserter{d},
		dispatcher: dispatcher{d},
		leaser:     leaser{database: d, renewers: renewers{db: open(&connector{config: direct, settings: directSession, readTimeout: readTimeout}, unpooled)}},
		claimer:    claimer{d},
		applier:    applier{d},
		ticketer:   roles.NewTickets(named{d}, &d.ended),
		fencer:     fencer{database: d},
		patroller:  roles.NewPatrol(named{d}),
		repairer:   repairer{database: d},
		keeper:     keeper{d},
		inspector:  roles.NewInspector(named{d}, choose),
		deaths:     roles.NewDeaths(named{d}),
		notices:    roles.NewNotices(named{d}),
		auditor:    roles.NewAudit(named{d}),
		verifier:   roles.NewVerification(named{d}),
		tokens:     roles.NewTokens(named{d}),
		answers:    roles.NewAnswers(named{d}),
		counters:   counters{d, roles.NewCounters(named{d})},
		operator:   roles.NewOperations(named{d}),
		gatekeeper: newGatekeeper(d),
		settable:   roles.NewSettings(named{d}),
		migrator:   migrator{d, make(chan struct{}, 1)},
		transfers:  transfers{d},
		presenter:  presenter{d, open(&connector{config: direct, settings: directSession.with(presenceSettings)}, unpooled), newPresenceSessions()},
		config:     config,
		pooling:    kind,
		mixed:      mixed,
	}
	if kind == lentSession {
		s.warnOfSettings(ctx)
	}
	return s, nil
}

// configureDirect reads the direct URL, which may be empty, and checks that no pooler is in between. sessions reports
// whether the store has sessions of its own.
func configureDirect(ctx context.Context, address string, kind pooling, log logrus.FieldLogger) (config pq.Config, session settings, sessions bool, err error) {
	if address == "" {
		if kind == mixedSession {
			err = errMixed
		}
		return config, nil, kind == ownSession, err
	}
	if kind == mixedSession {
		return config, nil, false, errMixed
	}
	if config, session, _, err = configure(address, log); err != nil {
		return config, nil, false, fmt.Errorf("the direct URL: %w", err)
	}
	own, first, err := probe(ctx, config)
	if err != nil {
		return config, nil, false, unreachable(ctx, config, err)
	}
	if first != nil {
		_ = first.Close()
	}
	if own != ownSession {
		err := fmt.Errorf("%w: the direct URL of PostgreSQL leads through a connection pooler that lends sessions for single transactions", holdfast.ErrInvalid)
		return config, nil, false, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintDirectURL})
	}
	return config, session, true, nil
}

// Schema returns the name of the schema the tables are in.
func (s *Store) Schema() string { return s.schema }

// Close implements store.Store. It also releases all presence locks.
func (s *Store) Close() error {
	s.presenceSessions.close()
	return errors.Join(s.db.Close(), s.leases.Close(), s.migrations.Close(), s.locks.Close(), s.renewers.close())
}

func open(c *connector, conns int) *sqlx.DB {
	db := sqlx.NewDb(sql.OpenDB(c), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// configure reads a URL. It returns how to connect, and the settings of a session. They are the standard settings,
// overridden by those of the URL. given lists the names of the settings in the URL. configure logs each parameter that has
// no effect.
func configure(address string, log logrus.FieldLogger) (config pq.Config, session settings, given []string, err error) {
	if address == "" {
		return pq.Config{}, nil, nil, holdfast.WithHint(fmt.Errorf("%w: the URL of PostgreSQL is empty", holdfast.ErrInvalid),
			holdfast.Hint{Kind: holdfast.HintSetDatabase, Arg: "postgres://user:password@host/database"})
	}
	if strings.Contains(address, "://") { // the driver also reads lists of parameters, as in host=a dbname=b
		if err := serverurl.CheckPostgres(address, "postgres://user:password@host:port/database"); err != nil {
			return pq.Config{}, nil, nil, fmt.Errorf("%w: the URL of PostgreSQL: %w", holdfast.ErrInvalid, err)
		}
	}
	if config, err = pq.NewConfig(splitHosts(address)); err != nil {
		if wrong, ok := errors.AsType[*url.Error](err); ok {
			err = wrong.Err // the text of url.Error contains the URL with the password
		}
		return pq.Config{}, nil, nil, fmt.Errorf("%w: the URL of PostgreSQL: %w", holdfast.ErrInvalid, err)
	}
	config.BinaryParameters = true // one round trip for a statement with parameters
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.ApplicationName == "" {
		config.ApplicationName = "holdfast"
	}
	for name, value := range config.Runtime {
		ignored, err := serverurl.Parameter(name, value)
		if err != nil {
			return pq.Config{}, nil, nil, fmt.Errorf("%w: the URL of PostgreSQL: %w", holdfast.ErrInvalid, err)
		}
		if ignored != "" {
			log.WithFields(logrus.Fields{"parameter": name, "reason": ignored}).Warn("parameter of the URL of PostgreSQL ignored")
			delete(config.Runtime, name)
		}
	}
	session, given = standard.with(config.Runtime), slices.Sorted(maps.Keys(config.Runtime))
	config.Runtime = nil
	return config, session, given, nil
}

// try sets the settings on an open connection. Returns an ErrInvalid if the server refuses one of them.
func (s settings) try(ctx context.Context, on *conn) error {
	defer on.guard(ctx)()
	err := s.send(ctx, on.pqConn, false)
	if kind := kindOf(err); err != nil && pq.As(err) != nil && kind != holdfast.ErrUnavailable {
		return holdfast.WithHint(fmt.Errorf("%w: PostgreSQL refuses a parameter of its URL: %w", holdfast.ErrInvalid, err),
			holdfast.Hint{Kind: holdfast.HintCheckDatabase, Arg: "the parameters"})
	}
	return translate(ctx, "set the parameters of the URL of PostgreSQL", err)
}

// standard are the settings that every session needs.
var standard = settings{
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
	"enable_seqscan":   "off", // the planner still uses it if there is no other plan
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"random_page_cost": "1.1",
}

// splitHosts rewrites a URL that lists several servers, each with a port, as in postgres://user@a:5432,b:5433/app.
// libpq reads such a URL, but lib/pq reads lists of servers in parameters only.
func splitHosts(address string) string {
	u, err := url.Parse(address)
	if err != nil || !strings.Contains(u.Host, ",") {
		return address // the caller parses it next and reports the error
	}
	var hosts, ports []string
	for _, server := range strings.Split(u.Host, ",") {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = server, "5432"
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	query := u.Query()
	query.Set("host", strings.Join(hosts, ","))
	query.Set("port", strings.Join(ports, ","))
	u.Host, u.RawQuery = "", query.Encode()
	return u.String()
}

// migrationSettings returns the settings of a transaction that migrates. The transaction may take long, but other
// transactions must not wait for it for long. The settings belong to the transaction, not to its session: a pooler may
// give the transaction another session, and the tables would then be created in another schema.
func migrationSettings(schema string) settings {
	return settings{
		"statement_timeout":                   "0",
		"idle_in_transaction_session_timeout": "0",
		"lock_timeout":                        milliseconds(lockTimeout),
		"search_path":                         identifier(schema),
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// unreachable returns the error for a failed first connection, with a hint.
func unreachable(ctx context.Context, config pq.Config, err error) error {
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	for _, more := range config.Multi {
		address += ", " + net.JoinHostPort(more.Host, strconv.Itoa(int(more.Port)))
	}
	operation := fmt.Sprintf("connect to PostgreSQL at %s, database %q", address, config.Database)
	if errors.Is(err, errCrowded) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	encrypted := isTLSError(err)
	err = translate(ctx, operation, err)
	if encrypted {
		return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintCheckDatabase,
			Arg: "sslmode, and the certificates that sslrootcert, sslcert and sslkey name,"})
	}
	if errors.Is(err, holdfast.ErrUnavailable) {
		return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintReachDatabase})
	}
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintCheckDatabase, Arg: "user, password, database and sslmode"})
}

// isTLSError reports whether err means that no encrypted connection was possible: one side rejected the certificate of
// the other side, or does not support encryption.
func isTLSError(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Op == "remote error" { // a TLS alert from the server
		return true
	}
	return errors.Is(err, pq.ErrSSLNotSupported)
}

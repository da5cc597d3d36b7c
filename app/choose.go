package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// choice is the backend that the URLs of a configuration select.
type choice struct {
	// store opens the store. With create it may create the file of the embedded backend. The file is nil for a server.
	store  func(ctx context.Context, create bool) (desk.Store, *file, error)
	broker func(context.Context) (broker.Broker, error)
	// mismatch, if not nil, says why the configured broker does not fit the store. A caller may still open the store.
	mismatch error
}

// choose is the only switch on the backend. It opens nothing. It returns an ErrInvalid if the database URL has no known
// scheme.
func choose(cfg configs.Config, log logrus.FieldLogger) (choice, error) {
	embeddedBroker := slices.Equal(cfg.AMQP.URLs, []string{configs.EmbeddedBroker})
	switch scheme, _, _ := strings.Cut(cfg.Database.URL, ":"); scheme {
	case "postgres", "postgresql":
		chosen := choice{store: openPostgres(cfg, log), broker: openRabbitMQ(cfg, log)}
		if embeddedBroker || len(cfg.AMQP.URLs) == 0 {
			chosen.mismatch = holdfast.WithHint(fmt.Errorf("%w: PostgreSQL needs RabbitMQ, and no broker is configured", holdfast.ErrInvalid),
				holdfast.Hint{Kind: holdfast.HintSetBroker, Arg: "amqp://guest:guest@localhost:5672/"})
		}
		return chosen, nil
	case "sqlite":
		chosen := choice{store: openSQLite(cfg, log), broker: func(context.Context) (broker.Broker, error) {
			return inproc.Open(inproc.Options{Log: log}), nil
		}}
		if !embeddedBroker {
			chosen.mismatch = holdfast.WithHint(fmt.Errorf("%w: RabbitMQ needs PostgreSQL, but the database is a file", holdfast.ErrInvalid),
				holdfast.Hint{Kind: holdfast.HintSetServers, Arg: "postgres://user:password@localhost:5432/app"})
		}
		return chosen, nil
	default:
		return choice{}, holdfast.WithHint(fmt.Errorf("%w: unknown database %q", holdfast.ErrInvalid, scheme+":"),
			holdfast.Hint{Kind: holdfast.HintSetDatabase, Arg: "postgres://user:password@host:5432/name or sqlite:/path/to/file.db"})
	}
}

func openPostgres(cfg configs.Config, log logrus.FieldLogger) func(context.Context, bool) (desk.Store, *file, error) {
	return func(ctx context.Context, _ bool) (desk.Store, *file, error) {
		s, err := postgres.Open(ctx, postgres.Options{
			URL: cfg.Database.URL, DirectURL: cfg.Database.DirectURL, Schema: cfg.Database.Schema, MaxConns: cfg.Database.MaxConns, Log: log,
		})
		if err != nil {
			return nil, nil, err
		}
		return s, nil, nil
	}
}

func openRabbitMQ(cfg configs.Config, log logrus.FieldLogger) func(context.Context) (broker.Broker, error) {
	return func(ctx context.Context) (broker.Broker, error) {
		b, err := rabbitmq.Open(ctx, rabbitmq.Options{
			URLs: cfg.AMQP.URLs, Log: log,
			// If a process hangs or loses its network, its tickets return to their AMQP queues when the broker misses
			// its heartbeats. That must not take much longer than its lease.
			Heartbeat: max(time.Second, cfg.Worker.Lease*3/5),
		})
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

func openSQLite(cfg configs.Config, log logrus.FieldLogger) func(context.Context, bool) (desk.Store, *file, error) {
	return func(ctx context.Context, create bool) (desk.Store, *file, error) {
		path, err := sqlite.ParseURL(cfg.Database.URL)
		if err != nil {
			return nil, nil, err
		}
		s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Create: create, Log: log})
		if err != nil {
			return nil, nil, err
		}
		return s, &file{store: s}, nil
	}
}

// presence returns the servers that notice at once that a process has ended. It returns either both servers or neither.
// The embedded backend has a lock on its file instead, and a connection pooler may keep no sessions.
func (b *Backend) presence() presence.Servers {
	s, storeOK := b.Store.(presence.Store)
	q, brokerOK := b.Broker.(presence.Broker)
	if !storeOK || !brokerOK || b.sessionless() {
		return presence.Servers{}
	}
	return presence.Servers{Store: s, Broker: q}
}

// sessionless reports whether the store has no sessions because of a connection pooler, and so provides no presence.
func (b *Backend) sessionless() bool {
	p, ok := b.Store.(*postgres.Store)
	return ok && !p.KeepsSessions()
}

package desk

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Roles has the methods of a Desk.
type Roles interface {
	DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error)
	CountDeathGroups(ctx context.Context) (store.GroupCounts, error)
	Fingerprints(ctx context.Context, digits string, limit int) ([]string, error)
	DeathGroup(ctx context.Context, fingerprint string) (store.DeathGroupDetails, error)
	ChangeDeathGroup(ctx context.Context, by store.Actor, change store.GroupChange) (store.DeathGroup, error)
	RecordDeaths(ctx context.Context, limit int) (int, error)
	Announce(ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error)) (store.Announced, error)
	CreateToken(ctx context.Context, by store.Actor, t store.NewToken) (id int64, err error)
	RevokeToken(ctx context.Context, by store.Actor, name string) error
	Tokens(ctx context.Context) ([]store.Token, error)
	UseToken(ctx context.Context, id int64) error
	Once(ctx context.Context, r store.Request, f func(context.Context, store.Tx) (store.Answer, error)) (answer store.Answer, err error)
	AddFigures(ctx context.Context, added []store.Figure) error
	ListFigures(ctx context.Context, queue string, last, step time.Duration) ([]store.FigurePoint, error)
	PruneFigures(ctx context.Context, limit int) (deleted int, err error)
	BlockedByQueue(ctx context.Context) (store.BlockedCounts, error)
}

// Store is a store in a database, with its desk and its migrations, as the surfaces use it.
type Store interface {
	store.Store
	store.Migrations
	Roles
}

// Without returns s as a Store. A call of a method that s does not have panics.
func Without(s store.Store) Store {
	return struct {
		store.Store
		store.Migrations
		Roles
	}{Store: s}
}
